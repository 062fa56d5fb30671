/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that neighbours read: each is shared memory of its own, told to a peer when the first reference
 * to it is sent (the words travel on the unix socket before the reference does in the ring), and mapped
 * there only to be read. */
#include "transport/shm_region.h"

#include <string.h>

#include "core/bytes.h"
#include "os/memory.h"
#include "os/sock.h"

enum word_kind { WORD_REGION = 1, WORD_DROPPED = 2 };
#define WORD_LEN  16   /* kind, id, length */
#define WORDS_MAX 1024 /* heard at once, more than a socket holds: the peer may speak without end */

/* ---- our own ---- */

struct shm_regions *shm_regions_open(struct heap *heap)
{
    struct shm_regions *regions = heap_alloc(heap, 1, sizeof *regions);
    if (regions)
        list_init(&regions->conns);
    return regions;
}

static void region_clear(struct region *region)
{
    shared_unmap(region->memory, region->len);
    shared_close(region->fd);
    *region = (struct region){.fd = -1};
}

void shm_regions_close(struct shm_regions *regions)
{
    for (int i = 0; regions && i < regions->used; i++)
        if (regions->regions[i].id != 0)
            region_clear(&regions->regions[i]);
    heap_free(regions);
}

static struct region *free_place(struct shm_regions *regions)
{
    for (int i = 0; i < SHM_REGIONS_MAX; i++) {
        if (regions->regions[i].id != 0)
            continue;
        regions->used = i >= regions->used ? i + 1 : regions->used;
        return &regions->regions[i];
    }
    return NULL;
}

void *shm_region_make(struct shm_regions *regions, size_t len)
{
    size_t page = memory_page();
    struct region made = {.fd = -1};
    struct region *place = free_place(regions);
    if (!place || len > SIZE_MAX / 2)
        return NULL;
    made.len = len == 0 ? page : (len + page - 1) / page * page;
    if (shared_make(made.len, &made.fd) != HEARTH_OK)
        return NULL;
    made.memory = shared_map(made.fd, made.len, true);
    if (!made.memory) {
        shared_close(made.fd);
        return NULL;
    }
    made.id = ++regions->last_id;
    *place = made;
    return place->memory;
}

static void encode_word(uint8_t word[WORD_LEN], enum word_kind kind, const struct region *region)
{
    store_u32(word, kind);
    store_u32(word + 4, region->id);
    store_u64(word + 8, region->len);
}

/* If it does not fit, the peer keeps its view until the connection ends: it costs it addresses. */
static void say_dropped(struct region_peer *peer, uint32_t id)
{
    uint8_t word[WORD_LEN];
    struct iovec piece = {word, sizeof word};
    encode_word(word, WORD_DROPPED, &(struct region){.id = id});
    (void)sock_send(peer->fd, &piece, 1);
}

/* The peer hears of it at once, or when it has read what it is reading. */
static void part(struct region_peer *peer, uint32_t id)
{
    bool reading = false;
    for (int i = 0; i < SHM_REFERENCES; i++) {
        peer->parting[i] = peer->parting[i] || peer->out[i] == id;
        reading = reading || peer->out[i] == id;
    }
    if (!reading)
        say_dropped(peer, id);
}

bool shm_region_drop(struct shm_regions *regions, void *memory)
{
    for (int i = 0; i < regions->used; i++) {
        struct region *region = &regions->regions[i];
        if (region->id == 0 || region->memory != memory)
            continue;
        struct list *item, *after;
        LIST_EACH (item, after, &regions->conns) {
            struct region_peer *peer = container_of(item, struct region_peer, item);
            if (peer->announced[i] == region->id)
                part(peer, region->id);
            peer->announced[i] = 0;
        }
        region_clear(region);
        return true;
    }
    return false;
}

/* ---- for a conn ---- */

void region_peer_init(struct region_peer *peer, struct shm_regions *regions, int fd)
{
    memset(peer, 0, sizeof *peer);
    list_init(&peer->item);
    peer->fd = fd;
    if (regions)
        list_push(&regions->conns, &peer->item);
}

void region_peer_fini(struct region_peer *peer)
{
    list_remove(&peer->item);
    for (int i = 0; i < SHM_REGIONS_MAX; i++)
        if (peer->theirs[i].id != 0)
            region_clear(&peer->theirs[i]);
}

static bool announce(struct region_peer *peer, int place, const struct region *region)
{
    uint8_t word[WORD_LEN];
    encode_word(word, WORD_REGION, region);
    if (sock_send_fds(peer->fd, word, sizeof word, &region->fd, 1) != HEARTH_OK)
        return false;
    peer->announced[place] = region->id;
    return true;
}

/* The region that holds these bytes and that the peer can see; NULL: none. */
static const struct region *region_of(struct shm_regions *regions, struct region_peer *peer,
                                      const void *memory, size_t len)
{
    uintptr_t at = (uintptr_t)memory;
    for (int i = 0; i < regions->used; i++) {
        const struct region *region = &regions->regions[i];
        uintptr_t start = (uintptr_t)region->memory;
        if (region->id == 0 || at < start || at - start > region->len || len > region->len - (at - start))
            continue;
        return peer->announced[i] == region->id || announce(peer, i, region) ? region : NULL;
    }
    return NULL;
}

bool region_refer(struct shm_regions *regions, struct region_peer *peer, const void *memory, size_t len,
                  uint32_t number, uint8_t reference[REFERENCE_LEN])
{
    const struct region *region = region_of(regions, peer, memory, len);
    if (!region)
        return false;
    peer->out[number] = region->id;
    store_u32(reference, number);
    store_u32(reference + 4, region->id);
    store_u64(reference + 8, (uint64_t)((const uint8_t *)memory - region->memory));
    return true;
}

void region_returned(struct region_peer *peer, uint32_t number)
{
    uint32_t id = peer->out[number];
    bool parting = peer->parting[number];
    peer->out[number] = 0;
    peer->parting[number] = false;
    for (int i = 0; i < SHM_REFERENCES; i++)
        parting = parting && peer->out[i] != id;
    if (parting)
        say_dropped(peer, id);
}

/* A region that its owner has dropped goes when we do not read it any more, whatever the owner thinks. */
static void leave(struct region_peer *peer, int place)
{
    for (int i = 0; i < SHM_REFERENCES; i++)
        if (!peer->left[place] || peer->in[i] == place + 1)
            return;
    peer->left[place] = false;
    region_clear(&peer->theirs[place]);
}

/* One word of the peer with the descriptor that came with it, which is taken. */
static bool word_take(struct region_peer *peer, const uint8_t word[WORD_LEN], int fd)
{
    uint32_t kind = load_u32(word), id = load_u32(word + 4);
    uint64_t len = load_u64(word + 8);
    for (int i = 0; i < SHM_REGIONS_MAX; i++) {
        struct region *place = &peer->theirs[i];
        if (kind == WORD_DROPPED && id != 0 && place->id == id) {
            peer->left[i] = true;
            leave(peer, i);
            return fd < 0;
        }
        if (kind != WORD_REGION || place->id != 0 || id == 0 || fd < 0 || len > SIZE_MAX / 2)
            continue;
        void *memory = shared_map(fd, (size_t)len, false);
        shared_close(fd);
        *place = (struct region){.id = memory ? id : 0, .fd = -1, .memory = memory, .len = (size_t)len};
        return memory;
    }
    shared_close(fd);
    return kind == WORD_DROPPED;
}

bool region_hear(struct region_peer *peer)
{
    for (int i = 0; i < WORDS_MAX; i++) {
        uint8_t word[WORD_LEN];
        int fds[1], count = 0;
        ssize_t len = sock_recv_fds(peer->fd, word, sizeof word, fds, 1, &count);
        if (len == 0)
            return true;
        if (len != WORD_LEN) { /* words are short: they come whole or the peer is broken */
            if (count > 0)
                shared_close(fds[0]);
            return false;
        }
        if (!word_take(peer, word, count > 0 ? fds[0] : -1))
            return false;
    }
    return true;
}

static int place_of(const struct region_peer *peer, uint32_t id)
{
    for (int i = 0; id != 0 && i < SHM_REGIONS_MAX; i++)
        if (peer->theirs[i].id == id && !peer->left[i])
            return i;
    return -1;
}

const void *region_find(struct region_peer *peer, const uint8_t reference[REFERENCE_LEN], size_t len,
                        uint32_t *number)
{
    uint32_t id = load_u32(reference + 4);
    uint64_t offset = load_u64(reference + 8);
    *number = load_u32(reference);
    if (*number >= SHM_REFERENCES || peer->in[*number] != 0)
        return NULL;
    if (place_of(peer, id) < 0)
        (void)region_hear(
            peer); /* it may have been told of only now, as the last thing before the peer closed */
    int place = place_of(peer, id);
    if (place < 0 || offset > peer->theirs[place].len || len > peer->theirs[place].len - offset)
        return NULL;
    peer->in[*number] = (uint8_t)(place + 1);
    return peer->theirs[place].memory + offset;
}

void region_release(struct region_peer *peer, uint32_t number)
{
    int place = peer->in[number] - 1;
    peer->in[number] = 0;
    leave(peer, place);
}
