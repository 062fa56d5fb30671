/* SPDX-License-Identifier: Apache-2.0 */
/* hearth_mem_alloc: buffers in shared memory, if other members are on this host. */
#include <string.h>

#include "node/node.h"

#define ALIGN 4096u

/* Ordinary memory: this is at `base`, the user's part on the next page. */
struct buffer {
    struct list item;
    void *memory;
};

static void *buffer_make(hearth_node *node, size_t len)
{
    if (len > SIZE_MAX / 2)
        return NULL;
    struct buffer *buffer = heap_alloc_raw(node->heap, 1, sizeof *buffer + ALIGN + len);
    if (!buffer)
        return NULL;
    list_init(&buffer->item);
    list_push(&node->buffers, &buffer->item);
    buffer->memory = (void *)(((uintptr_t)(buffer + 1) + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    memset(buffer->memory, 0, len);
    return buffer->memory;
}

static void buffer_drop(hearth_node *node, const void *memory)
{
    struct list *item, *after;
    LIST_EACH (item, after, &node->buffers) {
        struct buffer *buffer = container_of(item, struct buffer, item);
        if (buffer->memory != memory)
            continue;
        list_remove(item);
        heap_free(buffer);
        return;
    }
}

void buffers_free(hearth_node *node)
{
    struct list *item, *after;
    LIST_EACH (item, after, &node->buffers)
        heap_free(container_of(item, struct buffer, item));
    list_init(&node->buffers);
}

void *hearth_mem_alloc(hearth_node *node, size_t len)
{
    int status = !node ? HEARTH_INVALID : node_forked(node) ? HEARTH_FORKED : HEARTH_NO_MEMORY;
    void *memory = NULL;
    if (status == HEARTH_NO_MEMORY) {
        mutex_lock(&node->baton);
        if (node->regions)
            memory = shm_region_make(node->regions, len);
        if (!memory)
            memory = buffer_make(node, len);
        mutex_unlock(&node->baton);
    }
    if (!memory)
        error_set(error_last(), status, RANK_NONE, "alloc: %s", hearth_status_text(status));
    return memory;
}

void hearth_mem_free(hearth_node *node, void *memory)
{
    if (!node || !memory || node_forked(node))
        return;
    mutex_lock(&node->baton);
    if (!node->regions || !shm_region_drop(node->regions, memory))
        buffer_drop(node, memory);
    mutex_unlock(&node->baton);
}
