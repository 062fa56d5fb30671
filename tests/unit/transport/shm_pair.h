/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the shm transport for tests: two real ones, or one whose peer is the test itself. */
#pragma once

#include <stdatomic.h>

#include "transport/shm.h"

#define SHM_RING  4096u
#define SHM_MAGIC UINT64_C(0x314d487368746165)

/* One side of a connection with all that a node would have. */
struct shm_end {
    struct heap heap;
    struct event event;
    struct shm_regions *regions;
    struct conn *conn; /* NULL: closed */
};

void end_init(struct shm_end *end);
void end_close(struct shm_end *end); /* the connection */
/* Closes what is left and checks that nothing stays. */
void end_fini(struct shm_end *end);
/* Opens this side; `fd` is taken. */
int end_open(struct shm_end *end, int fd, bool maker, size_t ring_bytes, uint64_t timeout_ns,
             struct error *error);
ssize_t end_send(struct shm_end *end, const void *bytes, size_t len);
ssize_t end_recv(struct shm_end *end, void *target, size_t len);
bool end_signalled(struct shm_end *end); /* its event; clears it */

/* Two ends in this process. The first is the maker. */
void pair_open(struct shm_end ends[2], size_t ring_bytes);

/* ---- a peer that the test plays: the maker, on side 0 ---- */

/* As the page is laid out. */
struct raw_side {
    _Alignas(128) _Atomic(uint64_t) head;
    _Alignas(128) _Atomic(uint64_t) tail;
    _Alignas(128) _Atomic(uint64_t) returned;
    _Alignas(128) _Atomic(uint32_t) dozing;
    _Atomic(uint32_t) closed;
};
struct raw_page {
    uint64_t magic, ring_bytes;
    struct raw_side sides[2];
};

struct raw {
    int fd;        /* the socket */
    int memory_fd; /* -1: closed */
    struct raw_page *page;
    uint8_t *rings[2];
    size_t len; /* of the memory */
    struct event event;
};

/* Makes page and rings as they should be, and a socket; gives the other end of that. */
void raw_init(struct raw *raw, size_t ring_bytes, int *fd);
/* Hands it over, with any words and descriptors. */
void raw_offer(struct raw *raw, uint64_t magic, uint64_t ring_bytes, const int *fds, int count);
void raw_fini(struct raw *raw);
/* A peer as it should be, and a real end that is joined to it. */
void raw_open(struct raw *raw, struct shm_end *end);

int open_files(void); /* descriptors of this process; 0 where one cannot know */
