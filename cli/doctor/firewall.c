/* SPDX-License-Identifier: Apache-2.0 */
/* What the listed rules of a firewall mean for Hearth. */
#include "cli/doctor/firewall.h"

#include <stdio.h>
#include <string.h>

#define LINE_MAX_LEN 1024
#define PORT_WORD    "52416"
#define RANGE_WORD   "52415-"
#define RANGE_COLON  "52415:"

/* The next line without its indent and end; NULL: no more. Long ones are cut, which loses no keyword that
 * matters. */
static const char *next_line(const char *text, char line[static LINE_MAX_LEN])
{
    if (!*text)
        return NULL;
    size_t len = strcspn(text, "\n"), skip = strspn(text, " \t");
    size_t keep = len > skip ? len - skip : 0;
    keep = keep < LINE_MAX_LEN ? keep : LINE_MAX_LEN - 1;
    memcpy(line, text + (len > skip ? skip : 0), keep);
    line[keep] = 0;
    return text + len + (text[len] == '\n');
}

static bool begins(const char *line, const char *word)
{
    return strncmp(line, word, strlen(word)) == 0;
}

static bool lets_us_in(const char *line)
{
    return (strstr(line, PORT_WORD) || strstr(line, RANGE_WORD) || strstr(line, RANGE_COLON)) &&
           (strstr(line, "accept") || strstr(line, "ACCEPT"));
}

/* A verdict without a condition: nothing behind it counts. */
static bool shuts(const char *line)
{
    unsigned long long packets, bytes;
    int used = 0;
    if (sscanf(line, "counter packets %llu bytes %llu %n", &packets, &bytes, &used) == 2)
        line += used;
    return begins(line, "drop") || begins(line, "reject");
}

struct firewall_view firewall_read_nft(const char *text)
{
    struct firewall_view view = {.closed = false};
    char line[LINE_MAX_LEN], table[48] = "", chain[40] = "";
    bool input = false;
    while ((text = next_line(text, line))) {
        if (begins(line, "table "))
            snprintf(table, sizeof table, "%.*s", (int)strcspn(line + 6, "{"), line + 6);
        if (begins(line, "chain ")) {
            snprintf(chain, sizeof chain, "%.*s", (int)strcspn(line + 6, " {"), line + 6);
            input = false;
        }
        if (strstr(line, "hook input"))
            input = true;
        bool closes = input && (shuts(line) || (strstr(line, "hook input") && strstr(line, "policy drop")));
        if (closes && !view.closed)
            snprintf(view.place, sizeof view.place, "%s%s", table, chain);
        view.closed = view.closed || closes;
        view.opened = view.opened || lets_us_in(line);
    }
    return view;
}

struct firewall_view firewall_read_iptables(const char *text)
{
    struct firewall_view view = {.closed = false};
    char line[LINE_MAX_LEN];
    while ((text = next_line(text, line))) {
        view.closed = view.closed || begins(line, "-P INPUT DROP") || begins(line, "-A INPUT -j DROP") ||
                      begins(line, "-A INPUT -j REJECT");
        view.opened = view.opened || lets_us_in(line);
    }
    return view;
}
