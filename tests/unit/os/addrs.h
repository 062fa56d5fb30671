/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses by their text, for tests of os/. */
#pragma once

#include "os/sock.h"

#define PATIENCE_NS (30 * NS_PER_S) /* against hangs only */

struct sock_addr addr_of(const char *text); /* port 0 unless the text has one; asserts that it is good */
void assert_addr(const struct sock_addr *addr, const char *text);
/* Both assert that it went well. */
int listen_on(const struct sock_addr *addr, struct sock_addr *bound); /* bound may be NULL */
int dial_to(const struct sock_addr *addr, const struct sock_addr *from);
/* Waits until it can be read or, with to_send, written. */
bool ready(int fd, bool to_send);
