/* SPDX-License-Identifier: Apache-2.0 */
/* A trust file that is taken can be edited: then one entry is as it was told, the others are as they were,
 * and the file is taken again. No bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "security/trust_list.h"

#define ENTRIES_MAX 64 /* that are compared */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static bool same(const struct trust_entry *a, const struct trust_entry *b)
{
    return node_id_equal(&a->id, &b->id) && a->revoked == b->revoked && strcmp(a->name, b->name) == 0;
}

static int next_other(const struct trust_entry *entries, int from, int count, const struct node_id *id)
{
    while (from < count && node_id_equal(&entries[from].id, id))
        from++;
    return from;
}

/* But for those of the id, both lists are the same. */
static void check_others(const struct trust_entry *before, int before_count, const struct trust_entry *after,
                         int after_count, const struct node_id *id)
{
    int b = next_other(before, 0, before_count, id), a = next_other(after, 0, after_count, id);

    while (b < before_count && a < after_count) {
        if (!same(&before[b], &after[a]))
            abort();
        b = next_other(before, b + 1, before_count, id);
        a = next_other(after, a + 1, after_count, id);
    }
    if (b < before_count || a < after_count)
        abort();
}

static void edit(const char *text, size_t len, const struct node_id *id, const struct trust_entry *entry)
{
    struct trust_entry before[ENTRIES_MAX], after[ENTRIES_MAX];
    int before_count, after_count, line, found = 0;
    char *target = malloc(len + TRUST_LINE_MAX);
    size_t target_len;

    if (!target || trust_lines_parse(text, len, before, ENTRIES_MAX, &before_count, &line))
        abort();
    target_len = trust_lines_edit(text, len, id, entry, target);
    if (target_len > len + TRUST_LINE_MAX)
        abort();
    if (before_count < ENTRIES_MAX) {
        if (trust_lines_parse(target, target_len, after, ENTRIES_MAX, &after_count, &line))
            abort();
        check_others(before, before_count, after, after_count, id);
        for (int i = 0; i < after_count; i++)
            if (node_id_equal(&after[i].id, id) &&
                (++found > 1 || !entry || after[i].revoked != entry->revoked))
                abort();
        if (entry && !found)
            abort();
    }
    free(target);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const char *text = (const char *)bytes;
    struct trust_entry first = {.revoked = false};
    struct trust_entry entry = {.revoked = len % 2 == 0};
    int count, line;

    if (trust_lines_parse(text, len, &first, 1, &count, &line)) {
        if (line < 1)
            abort();
        return 0;
    }
    /* The name is what comes: it must not bring lines of its own. */
    memcpy(entry.name, bytes, len < sizeof entry.name ? len : sizeof entry.name);
    edit(text, len, &first.id, &entry);
    edit(text, len, &first.id, NULL);
    return 0;
}
