/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses that the user gave. Numbers are there at once; names are looked up behind our back, a few at a
 * time, and anew now and then. */
#pragma once

#include "core/heap.h"
#include "core/log.h"
#include "os/resolve.h"

struct seeds;

/* "host[:port],host[:port]"; NULL or "": none. HEARTH_INVALID names the one that is wrong. */
int MUST_CHECK seeds_open(struct heap *heap, const struct log *log, const char *text, uint16_t port,
                          struct seeds **out, struct error *error);
void seeds_close(struct seeds *seeds); /* NULL is allowed */
void seeds_pump(struct seeds *seeds, uint64_t now_ns);
uint64_t seeds_deadline(const struct seeds *seeds); /* of the next pump */
const struct sock_addr *seeds_addrs(const struct seeds *seeds, int *count);
