/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of a line, from arrival times. Pure functions. */
#pragma once

#include "cluster/probe_messages.h"

#define METER_STEP      4096u /* bytes between two marks */
#define METER_BYTES_MAX (8u * 1024 * 1024)
#define METER_MARKS_MAX (METER_BYTES_MAX / METER_STEP + 2)

struct meter_mark {
    uint64_t time_ns, bytes; /* bytes received by then */
};
struct meter {
    uint32_t count;
    struct meter_mark marks[METER_MARKS_MAX];
};

/* `bytes` in total have arrived by now. Call it when the socket has just been read empty: then it is a true
 * point of the curve, however late the read; and at the end. */
void meter_mark(struct meter *meter, uint64_t bytes, uint64_t now_ns);
/* The rate that the line settled at; mbit_x10 is 0 if too few bytes arrived. */
void meter_result(const struct meter *meter, struct probe_result *result);
/* The rate of a line with so many payload bytes a second: with headers, at least 1. */
uint32_t meter_mbit_x10(double bytes_per_s);
