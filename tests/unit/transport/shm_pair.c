/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the shm transport for tests. */
#include "shm_pair.h"

#include <dirent.h>

#include "core/bytes.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/sock.h"
#include "os/thread.h"
#include "support/suite.h"

#define OPEN_NS (20 * NS_PER_S)

void end_init(struct shm_end *end)
{
    memset(end, 0, sizeof *end);
    heap_init(&end->heap, 0);
    assert_int_equal(event_open(&end->event), HEARTH_OK);
    end->regions = shm_regions_open(&end->heap);
    assert_non_null(end->regions);
}

void end_close(struct shm_end *end)
{
    if (end->conn)
        end->conn->transport->close(end->conn);
    end->conn = NULL;
}

void end_fini(struct shm_end *end)
{
    end_close(end);
    shm_regions_close(end->regions);
    event_close(&end->event);
    assert_int_equal(end->heap.blocks, 0);
}

int end_open(struct shm_end *end, int fd, bool maker, size_t ring_bytes, uint64_t timeout_ns,
             struct error *error)
{
    struct shm_setup setup = {
        .heap = &end->heap,
        .fd = fd,
        .maker = maker,
        .ring_bytes = ring_bytes,
        .event = &end->event,
        .regions = end->regions,
        .deadline_ns = clock_real() + timeout_ns,
    };
    return shm_conn_open(&setup, &end->conn, error);
}

ssize_t end_send(struct shm_end *end, const void *bytes, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    return end->conn->transport->send(end->conn, &piece, 1);
}

ssize_t end_recv(struct shm_end *end, void *target, size_t len)
{
    return end->conn->transport->recv(end->conn, target, len);
}

bool end_signalled(struct shm_end *end)
{
    struct sock_wait wait = {.fd = end->event.read_fd, .want_recv = true};
    bool ready = sock_wait(&wait, 1, 0) > 0;
    event_clear(&end->event);
    return ready;
}

struct opener {
    struct shm_end *end;
    int fd;
    size_t ring_bytes;
    int status;
    struct error error;
};

static void open_maker(void *arg)
{
    struct opener *o = arg;
    o->status = end_open(o->end, o->fd, true, o->ring_bytes, OPEN_NS, &o->error);
}

void pair_open(struct shm_end ends[2], size_t ring_bytes)
{
    int fds[2];
    struct thread thread;
    struct error error = {0};
    end_init(&ends[0]);
    end_init(&ends[1]);
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    struct opener maker = {.end = &ends[0], .fd = fds[0], .ring_bytes = ring_bytes};
    assert_int_equal(thread_start(&thread, "maker", open_maker, &maker), HEARTH_OK);
    int status = end_open(&ends[1], fds[1], false, 0, OPEN_NS, &error);
    thread_join(&thread);
    if (status != HEARTH_OK || maker.status != HEARTH_OK)
        fail_msg("open: %s; %s", maker.error.text, error.text);
}

/* ---- a peer that the test plays ---- */

void raw_init(struct raw *raw, size_t ring_bytes, int *fd)
{
    int fds[2];
    memset(raw, 0, sizeof *raw);
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    raw->fd = fds[0];
    *fd = fds[1];
    raw->len = memory_page() + 2 * ring_bytes;
    assert_int_equal(event_open(&raw->event), HEARTH_OK);
    assert_int_equal(shared_make(raw->len, &raw->memory_fd), HEARTH_OK);
    raw->page = shared_map(raw->memory_fd, raw->len, true);
    assert_non_null(raw->page);
    raw->page->magic = SHM_MAGIC;
    raw->page->ring_bytes = ring_bytes;
    for (size_t i = 0; i < 2; i++)
        raw->rings[i] = (uint8_t *)raw->page + memory_page() + i * ring_bytes;
}

void raw_offer(struct raw *raw, uint64_t magic, uint64_t ring_bytes, const int *fds, int count)
{
    uint8_t words[16];
    store_u64(words, magic);
    store_u64(words + 8, ring_bytes);
    assert_int_equal(sock_send_fds(raw->fd, words, sizeof words, fds, count), HEARTH_OK);
}

void raw_fini(struct raw *raw)
{
    shared_unmap(raw->page, raw->len);
    shared_close(raw->memory_fd);
    event_close(&raw->event);
    sock_close(raw->fd);
}

void raw_open(struct raw *raw, struct shm_end *end)
{
    int fd, got, count = 0;
    uint8_t words[16];
    struct error error = {0};
    raw_init(raw, SHM_RING, &fd);
    end_init(end);
    raw_offer(raw, SHM_MAGIC, SHM_RING, (int[]){raw->memory_fd, raw->event.write_fd}, 2);
    if (end_open(end, fd, false, 0, OPEN_NS, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    assert_int_equal(sock_recv_fds(raw->fd, words, sizeof words, &got, 1, &count), sizeof words);
    assert_int_equal(count, 1);
    shared_close(got);
}

int open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}
