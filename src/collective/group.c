/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: members, sequence numbers by tag, what we remember of operations that are over, compound calls. */
#include <assert.h>
#include <string.h>

#include "collective/state.h"
#include "core/hash.h"

#define TAGS_FIRST 16u

static void group_free(struct group *group)
{
    disputes_drop(group);
    program_cache_fini(&group->programs);
    retired_free(&group->retired);
    heap_free(group->tags);
    heap_free(group->members);
    heap_free(group->rank_of);
    heap_free(group->host);
    heap_free(group->site);
    heap_free(group->order);
    heap_free(group);
}

/* Ranks in order, each once. */
static bool is_order(const int *order, int size)
{
    bool good = true;
    for (int place = 0; order && place < size; place++) {
        good = good && order[place] >= 0 && order[place] < size;
        for (int before = 0; before < place; before++)
            good = good && order[before] != order[place];
    }
    return good;
}

/* What the view points at is copied; it may point at the copies already. */
static void view_copy(struct group *group, const struct group_view *view)
{
    const int *from[] = {view->host, view->site, view->order};
    int *room[] = {group->host, group->site, group->order};
    const int **to[] = {&group->view.host, &group->view.site, &group->view.order};
    bool good = is_order(view->order, view->size);
    assert(good);
    (void)good;
    group->view = *view;
    for (int i = 0; i < 3; i++) {
        if (from[i])
            memmove(room[i], from[i], (size_t)view->size * sizeof *room[i]);
        *to[i] = from[i] ? room[i] : NULL;
    }
}

static bool group_fill(struct group *group, const struct group_view *view, const int *members)
{
    struct engine *engine = group->engine;
    size_t size = (size_t)view->size;
    group->members = heap_alloc(engine->heap, size, sizeof *group->members);
    group->rank_of = heap_alloc(engine->heap, (size_t)engine->size, sizeof *group->rank_of);
    group->tags = heap_alloc(engine->heap, TAGS_FIRST, sizeof *group->tags);
    group->host = heap_alloc(engine->heap, size, sizeof *group->host);
    group->site = heap_alloc(engine->heap, size, sizeof *group->site);
    group->order = heap_alloc(engine->heap, size, sizeof *group->order);
    if (!group->members || !group->rank_of || !group->tags || !group->host || !group->site || !group->order)
        return false;
    view_copy(group, view);
    group->tag_capacity = TAGS_FIRST;
    for (int i = 0; i < engine->size; i++)
        group->rank_of[i] = RANK_NONE;
    for (int i = 0; i < view->size; i++) {
        group->members[i] = members[i];
        group->rank_of[members[i]] = i;
    }
    group->rank = group->rank_of[engine->rank];
    group->messages = (struct message_group){.id = view->group,
                                             .epoch = view->epoch,
                                             .rank = group->rank,
                                             .size = view->size,
                                             .members = group->members,
                                             .rank_of = group->rank_of};
    return true;
}

/* A member that is lost to another may be there for us, and would not hear of it. */
static void pass_on(struct group *group, const struct retired *r)
{
    uint8_t payload[FRAME_CONTROL_MAX];
    int rank = r->why.rank;
    if (!status_is_loss(r->why.status) || rank < 0 || rank >= group->view.size || rank == group->rank)
        return;
    struct frame frame = group_frame(group, FRAME_ABORT, r->tag, r->sequence);
    frame.length = (uint32_t)error_encode(&r->why, payload, sizeof payload);
    group_send(group, rank, &frame, payload);
}

/* Aborts that came while other members had the group already. */
static void orphans_adopt(struct group *group)
{
    struct list *item, *after;
    LIST_EACH (item, after, &group->engine->orphans) {
        struct retired *r = container_of(item, struct retired, item);
        if (r->group != group->view.group)
            continue;
        list_remove(item);
        group->engine->orphan_count--;
        group_retire(group, r->tag, r->sequence, &r->why);
        pass_on(group, r);
        heap_free(r);
    }
}

int group_open(struct engine *engine, const struct group_view *view, const int *members, struct group **out)
{
    struct group *group = heap_alloc(engine->heap, 1, sizeof *group);
    if (!group)
        return HEARTH_NO_MEMORY;
    group->engine = engine;
    group->view = *view;
    group->left_at = UINT64_MAX;
    list_init(&group->item);
    list_init(&group->retired);
    list_init(&group->compounds);
    program_cache_init(&group->programs, engine->heap, op_free_idle);
    if (!group_fill(group, view, members)) {
        group_free(group);
        return HEARTH_NO_MEMORY;
    }
    for (int i = 0; i < view->size; i++) {
        const struct peer *peer = &engine->peers[members[i]];
        if (i != group->rank && peer->lost)
            error_because(&group->broken, engine->first_lost_reason, engine->loss, i,
                          "rank %d was lost before the group was made", i);
    }
    list_push(&engine->groups, &group->item);
    orphans_adopt(group);
    messages_group_opened(engine->messages, &group->messages);
    *out = group;
    return HEARTH_OK;
}

int group_open_inner(struct group *outer, enum inner_kind kind, const struct group_view *view,
                     const int *members, struct group **out)
{
    int status = group_open(outer->engine, view, members, out);
    if (status == HEARTH_OK) {
        (*out)->outer = outer;
        (*out)->kind = kind;
        engine_drop_passed(*out); /* of calls that we refused before we had the group */
    }
    return status;
}

void group_close(struct group *group)
{
    struct list *item, *after;
    LIST_EACH (item, after, &group->engine->active) {
        struct op *op = container_of(item, struct op, item);
        if (op->group == group)
            completion_cancel(op->completion);
    }
    messages_group_closed(group->engine->messages, &group->messages);
    list_remove(&group->item);
    group->engine->closed[group->engine->closed_next++ % CLOSED_KEPT] = group->view.group;
    engine_drop_group(group->engine, group->view.group);
    group_free(group);
}

int group_rank(const struct group *group)
{
    return group->rank;
}

int group_size(const struct group *group)
{
    return group->view.size;
}

const struct group_view *group_view(const struct group *group)
{
    return &group->view;
}

bool group_busy(const struct group *group)
{
    if (!list_empty(&group->compounds))
        return true;
    for (const struct list *item = group->engine->active.next; item != &group->engine->active;
         item = item->next)
        if (container_of(item, struct op, item)->group == group)
            return true;
    return false;
}

uint64_t group_version(const struct group *group)
{
    return group->version;
}

void group_set_view(struct group *group, const struct group_view *view)
{
    view_copy(group, view);
    program_cache_fini(&group->programs); /* they were made for how things were */
    program_cache_init(&group->programs, group->engine->heap, op_free_idle);
    group->version++;
}

int group_member(const struct group *group, int rank)
{
    return group->members[rank];
}

uint64_t group_splits(const struct group *group)
{
    return group->splits;
}

void group_set_splits(struct group *group, uint64_t splits)
{
    group->splits = splits;
}

/* ---- tags ---- */

static struct tag_entry *tag_find(struct tag_entry *tags, uint32_t capacity, uint64_t tag)
{
    uint32_t at = (uint32_t)hash_mix(0, tag) & (capacity - 1);
    while (tags[at].used && tags[at].tag != tag)
        at = (at + 1) & (capacity - 1);
    return &tags[at];
}

uint64_t group_sequence(const struct group *group, uint64_t tag)
{
    const struct tag_entry *entry = tag_find(group->tags, group->tag_capacity, tag);
    return entry->used ? entry->next : 0;
}

static bool tags_grow(struct group *group)
{
    uint32_t capacity = group->tag_capacity * 2;
    struct tag_entry *tags = heap_alloc(group->engine->heap, capacity, sizeof *tags);
    if (!tags)
        return false;
    for (uint32_t i = 0; i < group->tag_capacity; i++)
        if (group->tags[i].used)
            *tag_find(tags, capacity, group->tags[i].tag) = group->tags[i];
    heap_free(group->tags);
    group->tags = tags;
    group->tag_capacity = capacity;
    return true;
}

int group_advance(struct group *group, uint64_t tag, struct error *error)
{
    struct tag_entry *entry = tag_find(group->tags, group->tag_capacity, tag);
    if (!entry->used) {
        if (group->tag_count == TAGS_MAX)
            return error_set(error, HEARTH_LIMIT, group->rank, "the group has %u tags, no more are allowed",
                             TAGS_MAX);
        if ((group->tag_count + 1) * 2 > group->tag_capacity) {
            /* Without memory it fills up first: a search needs one free place. */
            if (!tags_grow(group) && group->tag_count + 2 > group->tag_capacity)
                return error_set(error, HEARTH_NO_MEMORY, group->rank, "no memory for another tag");
            entry = tag_find(group->tags, group->tag_capacity, tag);
        }
        group->tag_count++;
        *entry = (struct tag_entry){.tag = tag, .used = true};
    }
    entry->next++;
    group->begun++;
    return HEARTH_OK;
}

/* ---- operations that are over ---- */

struct ended *group_ended(struct group *group, uint64_t tag, uint64_t sequence)
{
    for (uint32_t i = 1; i <= ENDED_KEPT; i++) { /* the newest first */
        struct ended *e = &group->ended[(group->ended_next - i) % ENDED_KEPT];
        if (!e->valid)
            return NULL;
        if (e->tag == tag && e->sequence == sequence)
            return e;
    }
    return NULL;
}

void group_remember(struct group *group, const struct op *op)
{
    struct ended *e = &group->ended[group->ended_next++ % ENDED_KEPT];
    *e = (struct ended){
        .tag = op->tag, .sequence = op->sequence, .record = op->record, .valid = true, .judged = op->judged};
    e->record.state = CALL_ENDED;
}

struct retired *group_retired(const struct group *group, uint64_t tag, uint64_t sequence)
{
    for (const struct list *item = group->retired.next; item != &group->retired; item = item->next) {
        struct retired *r = container_of(item, struct retired, item);
        if (r->tag == tag && r->sequence == sequence)
            return r;
    }
    return NULL;
}

/* One more, at the end of a list that holds so many; the oldest makes room where it is full: its poster will
 * time out instead. So will this one's if there is no memory. */
static void retired_add(struct heap *heap, struct list *list, uint32_t *count, uint32_t max,
                        const struct retired *new)
{
    struct list *oldest = *count == max ? list_pop(list) : NULL;
    struct retired *r = oldest ? container_of(oldest, struct retired, item) : heap_alloc(heap, 1, sizeof *r);
    if (!r)
        return;
    *r = *new;
    *count += !oldest;
    list_push(list, &r->item);
}

void retired_free(struct list *list)
{
    struct list *item;
    while ((item = list_pop(list)))
        heap_free(container_of(item, struct retired, item));
}

void group_retire(struct group *group, uint64_t tag, uint64_t sequence, const struct error *why)
{
    if (group_retired(group, tag, sequence))
        return;
    engine_drop_waiting(group, tag, sequence);
    retired_add(group->engine->heap, &group->retired, &group->retired_count, RETIRED_MAX,
                &(struct retired){.tag = tag, .sequence = sequence, .why = *why});
}

void group_unretire(struct group *group, struct retired *r)
{
    list_remove(&r->item);
    group->retired_count--;
    heap_free(r);
}

void group_unretire_parts(struct group *inner, uint64_t tag, uint64_t call)
{
    struct list *item, *after;
    LIST_EACH (item, after, &inner->retired) {
        struct retired *r = container_of(item, struct retired, item);
        if (r->tag == tag && part_of_sequence(r->sequence).call == call)
            group_unretire(inner, r);
    }
}

void engine_retire(struct engine *engine, const struct frame *frame, const struct error *why)
{
    retired_add(engine->heap, &engine->orphans, &engine->orphan_count, ORPHANS_MAX,
                &(struct retired){
                    .group = frame->group, .tag = frame->tag, .sequence = frame->sequence, .why = *why});
}

/* ---- calls that are made of several operations: the numbers of their parts (docs/payloads.md) ----
 *
 *   63                     26 25   24 23           0
 *   | number of the opening | track | part of track |
 */

#define INDEX_BITS 24
#define TRACK_BITS 2
#define CALL_SHIFT (INDEX_BITS + TRACK_BITS)
#define INDEX_MAX  (UINT32_C(1) << INDEX_BITS)
#define CALL_MAX   (UINT64_C(1) << (64 - CALL_SHIFT))

uint64_t part_sequence(const struct compound *compound, enum inner_kind kind, uint32_t track)
{
    return compound->sequence << CALL_SHIFT | (uint64_t)track << INDEX_BITS | compound->next[kind][track];
}

struct part part_of_sequence(uint64_t sequence)
{
    return (struct part){.call = sequence >> CALL_SHIFT,
                         .track = (uint32_t)(sequence >> INDEX_BITS) & (PART_TRACKS - 1),
                         .index = (uint32_t)sequence & (INDEX_MAX - 1)};
}

int compound_check(const struct compound *compound, enum inner_kind kind, uint32_t track, struct error *error)
{
    if (compound->sequence < CALL_MAX && compound->next[kind][track] < INDEX_MAX - 1)
        return HEARTH_OK;
    return error_set(error, HEARTH_LIMIT, RANK_NONE,
                     "no number is left for a part: a call has at most 2^%d, a tag of a group 2^%d calls",
                     INDEX_BITS, 64 - CALL_SHIFT);
}

static struct compound *compound_find(const struct group *outer, uint64_t tag, uint64_t sequence)
{
    struct list *item, *after;
    LIST_EACH (item, after, &outer->compounds) {
        struct compound *c = container_of(item, struct compound, item);
        if (c->tag == tag && c->sequence == sequence)
            return c;
    }
    return NULL;
}

bool group_passed(const struct group *group, uint64_t tag, uint64_t sequence)
{
    if (!group->outer)
        return sequence < group_sequence(group, tag);
    struct part part = part_of_sequence(sequence);
    if (part.call >= group_sequence(group->outer, tag))
        return false;
    const struct compound *c = compound_find(group->outer, tag, part.call);
    return !c || part.index < c->next[group->kind][part.track];
}

void compound_close(struct group *group, struct compound *compound)
{
    if (list_empty(&compound->item))
        return;
    list_remove(&compound->item);
    engine_drop_parts(group, compound->tag, compound->sequence);
}
