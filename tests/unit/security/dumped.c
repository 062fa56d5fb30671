/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as /proc/self/smaps describes it. */
#include "dumped.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REGIONS_MAX 1024
#define TEXT_MAX    (REGIONS_MAX * 1024)

struct region {
    uintptr_t at, end;
    bool writable;
    const char *flags; /* " rd wr mr dd " */
};

/* Neither uses the heap: that would write over what was left there. */
static struct region regions[REGIONS_MAX];
static char text[TEXT_MAX];

static bool read_text(void)
{
    int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t got = 1;

    if (fd < 0)
        return false;
    while (got > 0 && len < sizeof text - 1) {
        got = read(fd, text + len, sizeof text - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    text[len] = '\0';
    close(fd);
    return len < sizeof text - 1; /* all of it */
}

static int list_regions(void)
{
    int count = 0;

    if (!read_text())
        return -1;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *after, *rights;
        *end = '\0';
        unsigned long at = strtoul(line, &after, 16);
        if (*after == '-' && count < REGIONS_MAX) {
            unsigned long stop = strtoul(after + 1, &rights, 16);
            bool writable = strncmp(rights, " rw", 3) == 0;
            regions[count++] = (struct region){.at = at, .end = stop, .writable = writable};
        }
        if (count > 0 && strncmp(line, "VmFlags:", 8) == 0)
            regions[count - 1].flags = line + 8;
    }
    return count;
}

static bool has_flag(const struct region *region, const char *flag)
{
    char wanted[8];

    snprintf(wanted, sizeof wanted, " %s ", flag);
    return region->flags && strstr(region->flags, wanted);
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
