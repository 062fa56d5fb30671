/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads of the messages PROBE, MEASURED and LOAD; docs/cluster_messages.md specifies them. */
#pragma once

#include "membership/topology.h"
#include "os/sock.h"

#define PROBE_MESSAGE_MAX    (45 + NET_ADDR_LEN_MAX)
#define MEASURED_PATHS_MAX   (VIEW_MEMBERS_MAX - 1)
#define MEASURED_MESSAGE_MAX (8 + MEASURED_PATHS_MAX * 56)
#define RESULT_LEN           24

struct probe_order {
    uint32_t number; /* not 0 */
    struct identity to;
    struct sock_addr addr; /* len 0: the best that the member knows */
};
/* Bytes written; 0: it does not fit. */
size_t probe_order_encode(const struct probe_order *order, void *target, size_t size);
/* False: malformed; *what says why. */
bool probe_order_decode(struct probe_order *order, const void *source, size_t len, const char **what);

enum probe_outcome { PROBE_DONE, PROBE_FAILED, PROBE_NOT_NOW };
enum measured_how { MEASURED_NOT, MEASURED_PROBE, MEASURED_TRAFFIC };

struct measured_path {
    struct identity to;
    uint32_t mbit_x10, round_trip_us, loss_ppm;
    uint8_t kind; /* enum path_kind */
    uint8_t how;  /* enum measured_how */
};
struct measured {
    uint32_t number; /* of the order that it ends, 0: none */
    uint8_t outcome; /* enum probe_outcome */
    int count;
    struct measured_path paths[MEASURED_PATHS_MAX];
};
size_t measured_encode(const struct measured *measured, void *target, size_t size);
bool measured_decode(struct measured *measured, const void *source, size_t len, const char **what);

/* The result of a probe, by its receiver. */
struct probe_result {
    uint32_t mbit_x10;       /* 0: too few bytes */
    uint64_t bytes, time_ns; /* evaluated, in total */
};
enum load_what { LOAD_MORE, LOAD_LAST, LOAD_RESULT };
void probe_result_encode(const struct probe_result *result, uint8_t target[static RESULT_LEN]);
bool probe_result_decode(struct probe_result *result, const void *source, size_t len);
