/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a node's counters out of its metrics text. */
#include "cli/shared/counter.h"

#include <stdlib.h>
#include <string.h>

static uint64_t find(const char *text, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) == 0 && line[len] == ' ')
            return strtoull(line + len + 1, NULL, 10);
    }
    return 0;
}

uint64_t counter_read(hearth_node *node, const char *name)
{
    int64_t len = hearth_metrics_text(node, NULL, 0);
    if (len < 0)
        return 0;
    size_t room = (size_t)len + 1024; /* it may grow between the two calls */
    char *text = malloc(room);
    uint64_t value = 0;
    if (text && hearth_metrics_text(node, text, room) >= 0)
        value = find(text, name);
    free(text);
    return value;
}
