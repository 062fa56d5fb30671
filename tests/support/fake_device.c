/* SPDX-License-Identifier: Apache-2.0 */
/* Two mappings of one memory: with and without rights. */
#include "support/fake_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PENDING_MAX 4096

/* Copies that a thread has begun. */
struct pending {
    struct fake_device *device;
    void *to;
    const void *from;
    size_t len;
};
static _Thread_local struct pending pending[PENDING_MAX];
static _Thread_local int pending_count;

static void nap(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

/* One call less succeeds. True: this one fails. */
static bool fails(_Atomic(int) *left)
{
    int now = atomic_load(left);
    while (now >= 0)
        if (atomic_compare_exchange_weak(left, &now, now > 0 ? now - 1 : -1))
            return now == 0;
    return false;
}

static bool is_device(const struct fake_device *d, const void *at, size_t len)
{
    uintptr_t begin = (uintptr_t)at, base = (uintptr_t)d->base;
    return begin >= base && len <= d->len && begin - base <= d->len - len;
}

static bool is_view(const struct fake_device *d, const void *at)
{
    return (uintptr_t)at >= (uintptr_t)d->view && (uintptr_t)at < (uintptr_t)d->view + d->len;
}

static void *seen(const struct fake_device *d, const void *device)
{
    return d->view + ((const uint8_t *)device - d->base);
}

static int begin(struct fake_device *d, const void *device, const void *host, struct pending copy)
{
    atomic_fetch_add(&d->inside, 1);
    while (atomic_load(&d->paused))
        nap(1000000);
    bool good = is_device(d, device, copy.len) && !is_device(d, host, 1) && !is_view(d, host) &&
                pending_count < PENDING_MAX;
    if (good)
        pending[pending_count++] = copy;
    else
        atomic_fetch_add(&d->wrong, 1);
    atomic_fetch_sub(&d->inside, 1);
    return good ? 0 : -1;
}

static int copy_in(void *arg, void *host, const void *device, size_t len)
{
    struct fake_device *d = arg;
    if (fails(&d->in_left))
        return FAKE_DEVICE_CODE;
    atomic_fetch_add(&d->in_bytes, len);
    return begin(d, device, host, (struct pending){d, host, seen(d, device), len});
}

static int copy_out(void *arg, void *device, const void *host, size_t len)
{
    struct fake_device *d = arg;
    if (fails(&d->out_left))
        return FAKE_DEVICE_CODE;
    atomic_fetch_add(&d->out_bytes, len);
    return begin(d, device, host, (struct pending){d, seen(d, device), host, len});
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int wait_all(void *arg)
{
    struct fake_device *d = arg;
    uint64_t start = now_ns(), bytes = 0, rate = atomic_load(&d->bytes_per_s);
    for (int i = 0; i < pending_count; i++) {
        memcpy(pending[i].to, pending[i].from, pending[i].len);
        bytes += pending[i].len;
    }
    pending_count = 0;
    uint64_t due = rate > 0 ? start + bytes * 1000000000u / rate : 0, now = now_ns();
    if (due > now)
        nap(due - now); /* as a device does that copies by itself */
    return fails(&d->wait_left) ? FAKE_DEVICE_CODE : 0;
}

void fake_device_open(struct fake_device *d, size_t len)
{
    memset(d, 0, sizeof *d);
    FILE *file = tmpfile();
    if (!file || ftruncate(fileno(file), (off_t)len) != 0)
        abort();
    int fd = fileno(file);
    d->len = len;
    d->view = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    d->base = mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, 0);
    fclose(file);
    if (d->view == MAP_FAILED || d->base == MAP_FAILED)
        abort();
    atomic_store(&d->in_left, -1);
    atomic_store(&d->out_left, -1);
    atomic_store(&d->wait_left, -1);
    hearth_memory_init(&d->memory);
    d->memory.arg = d;
    d->memory.copy_in = copy_in;
    d->memory.copy_out = copy_out;
    d->memory.wait = wait_all;
}

void fake_device_close(struct fake_device *d)
{
    munmap(d->view, d->len);
    munmap(d->base, d->len);
}

void *fake_device_alloc(struct fake_device *d, size_t len)
{
    size_t need = (len + 63) / 64 * 64 + 64, at = atomic_fetch_add(&d->used, need);
    if (at + need > d->len)
        abort();
    return d->view + at;
}

void fake_device_reset(struct fake_device *d)
{
    atomic_store(&d->used, 0);
}

void *fake_device_address(const struct fake_device *d, const void *at)
{
    return at ? d->base + ((const uint8_t *)at - d->view) : NULL;
}
