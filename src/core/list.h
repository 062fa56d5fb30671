/* SPDX-License-Identifier: Apache-2.0 */
/* Doubly linked list through a member of the element; the list does not own its elements. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev; /* a head points at itself when empty; an element outside any list too */
};

static inline void list_init(struct list *head)
{
    head->next = head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

static inline void list_push(struct list *head, struct list *item) /* at the end */
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void list_remove(struct list *item) /* harmless on an element outside any list */
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

static inline struct list *list_pop(struct list *head) /* the first, taken out; NULL: empty */
{
    struct list *item = head->next;
    if (item == head)
        return NULL;
    list_remove(item);
    return item;
}

/* Walks the list; the element at hand may be removed. `item` and `after` are struct list pointers. */
#define LIST_EACH(item, after, head)                                                                         \
    for ((item) = (head)->next, (after) = (item)->next; (item) != (head);                                    \
         (item) = (after), (after) = (item)->next)
