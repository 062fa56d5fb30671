/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as /proc/self/smaps describes it. */
#include "dumped.h"

#include <stdio.h>
#include <string.h>

#define REGIONS_MAX 1024

struct region {
    uintptr_t at, end;
    bool writable;
    char flags[512]; /* " rd wr mr dd " */
};

/* Filled before memory is looked through: reading the list allocates. */
static struct region regions[REGIONS_MAX];

static int list_regions(void)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    int count = 0;

    if (!file)
        return -1;
    while (fgets(line, sizeof(line), file)) {
        unsigned long at, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &at, &end, rights) == 3 && count < REGIONS_MAX)
            regions[count++] =
                (struct region){.at = at, .end = end, .writable = strncmp(rights, "rw", 2) == 0};
        if (count > 0 && strncmp(line, "VmFlags:", 8) == 0)
            snprintf(regions[count - 1].flags, sizeof(regions[0].flags), "%s", line + 8);
    }
    fclose(file);
    return count;
}

static bool has_flag(const struct region *region, const char *flag)
{
    char wanted[8];

    snprintf(wanted, sizeof(wanted), " %s ", flag);
    return strstr(region->flags, wanted) != NULL;
}

void pattern_set(struct pattern *pattern, const char *name, const void *bytes, size_t len)
{
    pattern->name = name;
    pattern->len = len;
    for (size_t i = 0; i < len; i++)
        pattern->turned[i] = (uint8_t) ~((const uint8_t *)bytes)[i];
}

static int count_in(const struct region *region, const struct pattern *pattern)
{
    const uint8_t *at = (const uint8_t *)region->at, *end = (const uint8_t *)region->end;
    int count = 0;

    for (; (size_t)(end - at) >= pattern->len; at++) {
        size_t same = 0;
        while (same < pattern->len && (at[same] ^ pattern->turned[same]) == 0xff)
            same++;
        count += same == pattern->len;
    }
    return count;
}

int dumped_count(const struct pattern *pattern)
{
    int regions_count = list_regions(), count = 0;

    for (int i = 0; i < regions_count; i++)
        if (regions[i].writable && !has_flag(&regions[i], "dd") && !has_flag(&regions[i], "io"))
            count += count_in(&regions[i], pattern);
    return regions_count > 0 ? count : -1;
}

bool page_has_flag(const void *address, const char *flag)
{
    int count = list_regions();

    for (int i = 0; i < count; i++)
        if ((uintptr_t)address >= regions[i].at && (uintptr_t)address < regions[i].end)
            return has_flag(&regions[i], flag);
    return false;
}
