/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job may still run in another instance. */
#include "membership/job_record.h"

#include <string.h>

#include "core/crc32c.h"

#define FILE_MAGIC   UINT32_C(0x424f4a48) /* "HJOB" */
#define FILE_VERSION 1

/* ---- participants ---- */

void job_record_mark(struct view *ran, const struct identity *members, int count)
{
    for (int i = 0; i < ran->size; i++)
        ran->members[i].features &= ~(JOB_TOOK_PART | JOB_FIRST);
    for (int rank = 0; rank < count; rank++) {
        int at = view_find(ran, &members[rank]);
        if (at >= 0)
            ran->members[at].features |= JOB_TOOK_PART | (rank == 0 ? JOB_FIRST : 0);
    }
}

void job_record_follow(struct view *ran, const struct view *before)
{
    for (int i = 0; i < ran->size; i++) {
        int at = view_find(before, &ran->members[i].id);
        uint32_t kept = at >= 0 ? before->members[at].features & (JOB_TOOK_PART | JOB_FIRST) : 0;
        ran->members[i].features = (ran->members[i].features & ~(JOB_TOOK_PART | JOB_FIRST)) | kept;
    }
}

/* ---- members present ---- */

/* A restarted process on the machine of `id` that does not replace another member yet; -1: none. */
static int successor(const struct view *ran, const struct view *now, const bool *counts, const bool *used,
                     const struct identity *id)
{
    for (int i = 0; i < now->size; i++)
        if (!used[i] && (!counts || counts[i]) && node_id_equal(&now->members[i].id.node, &id->node) &&
            view_find(ran, &now->members[i].id) < 0)
            return i;
    return -1;
}

/* Members of the old view that are not among the counted members of the new one. */
static void find_missing(const struct view *ran, const struct view *now, const bool *counts,
                         bool missing[static VIEW_MEMBERS_MAX])
{
    bool used[VIEW_MEMBERS_MAX] = {false};

    memset(missing, 0, VIEW_MEMBERS_MAX * sizeof *missing);
    for (int i = 0; i < ran->size; i++) {
        const struct identity *id = &ran->members[i].id;
        int same = view_find(now, id), next = -1;
        if (same >= 0 && (!counts || counts[same]))
            continue;
        if (same < 0)
            next = successor(ran, now, counts, used, id);
        if (next >= 0)
            used[next] = true;
        missing[i] = next < 0;
    }
}

/* More than half of the participants are present, or half with the first one. Other members are not waited
 * for. */
static bool enough_took_part(const struct view *ran, bool missing[static VIEW_MEMBERS_MAX])
{
    int all = 0, there = 0;
    bool first = false;

    for (int i = 0; i < ran->size; i++) {
        bool took_part = ran->members[i].features & JOB_TOOK_PART;
        all += took_part;
        there += took_part && !missing[i];
        first |= !missing[i] && ran->members[i].features & JOB_FIRST;
        missing[i] = missing[i] && took_part;
    }
    return 2 * there > all || (2 * there == all && (first || all == 0));
}

bool job_record_elsewhere(const struct view *ran, const struct view *now, const bool *heard, const bool *asks,
                          bool missing[static VIEW_MEMBERS_MAX])
{
    memset(missing, 0, VIEW_MEMBERS_MAX * sizeof *missing);
    if (ran->instance == now->instance)
        return false;
    find_missing(ran, now, heard, missing);
    if (view_quorum(ran, missing))
        return true;
    find_missing(ran, now, asks, missing);
    return !enough_took_part(ran, missing);
}

/* ---- bytes ---- */

void job_record_put(struct writer *w, const struct view *ran)
{
    put_u64(w, ran->instance);
    put_u64(w, ran->epoch);
    put_u8(w, (uint8_t)ran->leader);
    put_u8(w, (uint8_t)ran->size);
    for (int i = 0; i < ran->size; i++) {
        identity_put(w, &ran->members[i].id);
        put_u8(w, (uint8_t)((ran->members[i].features & PEER_GUEST ? 1 : 0) |
                            (ran->members[i].features & JOB_TOOK_PART ? 2 : 0) |
                            (ran->members[i].features & JOB_FIRST ? 4 : 0)));
    }
}

bool job_record_get(struct reader *r, struct view *ran)
{
    memset(ran, 0, sizeof *ran);
    ran->instance = get_u64(r);
    ran->epoch = get_u64(r);
    ran->term = 1;
    ran->leader = get_u8(r);
    int size = get_u8(r);
    if (r->bad || ran->instance == 0 || ran->epoch == 0 || size < 1 || size > VIEW_MEMBERS_MAX ||
        ran->leader >= size)
        return false;
    for (int i = 0; i < size; i++) {
        struct identity *id = &ran->members[i].id;
        (void)identity_get(r, id);
        uint8_t flags = get_u8(r);
        if (r->bad || flags > 7 || (flags & 6) == 4 || view_find(ran, id) >= 0)
            return false;
        ran->members[i].features =
            (flags & 1 ? PEER_GUEST : 0) | (flags & 2 ? JOB_TOOK_PART : 0) | (flags & 4 ? JOB_FIRST : 0);
        ran->size = i + 1;
    }
    return true;
}

/* ---- the file ---- */

bool job_text_ok(const char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

bool job_name_ok(const char *name)
{
    return name[0] != '\0' && strlen(name) < JOB_NAME_MAX && job_text_ok(name);
}

bool job_file_begin(struct reader *r, const void *bytes, size_t len, int *count, const char **what)
{
    struct reader end;

    *what = "is no list of jobs";
    if (len < JOB_FILE_HEAD + 4)
        return false;
    *r = reader_of(bytes, len - 4);
    end = reader_of((const uint8_t *)bytes + len - 4, 4);
    if (get_u32(r) != FILE_MAGIC)
        return false;
    *what = "is of a later version";
    if (get_u16(r) != FILE_VERSION)
        return false;
    *what = "is damaged";
    *count = get_u16(r);
    return get_u32(&end) == crc32c(0, bytes, len - 4) && *count <= JOB_FILE_JOBS_MAX;
}

bool job_file_next(struct reader *r, struct job_memory *m)
{
    m->process = get_u64(r);
    if (m->process == 0 || !text_get(r, m->job, sizeof m->job) || !job_name_ok(m->job) ||
        !job_record_get(r, &m->ran))
        return false;
    for (int i = 0; i < m->ran.size; i++)
        if (!text_get(r, m->ran.members[i].name, sizeof m->ran.members[i].name))
            return false;
    return true;
}

void job_file_put(struct writer *w, const struct job_memory *m)
{
    put_u64(w, m->process);
    text_put(w, m->job, sizeof m->job);
    job_record_put(w, &m->ran);
    for (int i = 0; i < m->ran.size; i++)
        text_put(w, m->ran.members[i].name, sizeof m->ran.members[i].name);
}

size_t job_file_end(uint8_t *bytes, size_t entries_len, int count)
{
    struct writer w = writer_of(bytes, JOB_FILE_HEAD);
    size_t len = JOB_FILE_HEAD + entries_len;

    put_u32(&w, FILE_MAGIC);
    put_u16(&w, FILE_VERSION);
    put_u16(&w, (uint16_t)count);
    store_u32(bytes + len, crc32c(0, bytes, len));
    return len + 4;
}
