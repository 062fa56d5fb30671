/* SPDX-License-Identifier: Apache-2.0 */
/* A device whose memory the CPU may not touch: its pages have no rights, and only the adapter reaches them,
 * by a second mapping of the same memory. Copies are asynchronous: they happen in `wait`. */
#pragma once

#include <hearth.h>
#include <stdatomic.h>
#include <stdbool.h>

struct fake_device {
    struct hearth_memory memory; /* the adapter */
    uint8_t *base, *view;        /* device addresses; where the test sees the same bytes */
    size_t len;
    _Atomic(size_t) used;
    _Atomic(uint64_t) bytes_per_s;             /* 0: at once */
    _Atomic(int) in_left, out_left, wait_left; /* calls that succeed before one fails; -1: none fails */
    _Atomic(bool) paused;                      /* copies do not begin */
    _Atomic(int) inside;                       /* threads in a function */
    _Atomic(uint64_t) in_bytes, out_bytes;
    _Atomic(int) wrong; /* calls with addresses that are not what they should be */
};

void fake_device_open(struct fake_device *device, size_t len);
void fake_device_close(struct fake_device *device);
/* Where the test sees it; aligned to 64 bytes. Freed by fake_device_reset, all at once. */
void *fake_device_alloc(struct fake_device *device, size_t len);
void fake_device_reset(struct fake_device *device);
/* What the library gets for an address in the view; NULL for NULL. */
void *fake_device_address(const struct fake_device *device, const void *seen);

#define FAKE_DEVICE_CODE (-77) /* what a function returns that fails */
