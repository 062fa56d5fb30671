/* SPDX-License-Identifier: Apache-2.0 */
/* Where ranks run: the list of --hosts, and which rank goes where. */
#include "cli/run/job.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/shared/args.h"
#include "cli/shared/route.h"
#include "os/host.h"

/* A name goes to ssh as an argument: it must not be taken for an option there, or for something of a
 * shell's. */
static bool name_is_good(const char *name, size_t len)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@%:";
    const char *at = memchr(name, '@', len);
    if (len == 0 || name[0] == '-' || name[0] == '@' || name[len - 1] == '@')
        return false;
    if (at && (at[1] == '-' || memchr(at + 1, '@', len - (size_t)(at + 1 - name))))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!name[i] || !strchr(allowed, name[i]))
            return false;
    }
    return true;
}

static bool is_local(const struct host *host)
{
    char own[HOST_NAME_LEN];
    const char *name = host->name;
    if (strchr(name, '@'))
        return false; /* another user, perhaps: only ssh becomes one */
    if (strcmp(name, "localhost") == 0 || route_owns(name))
        return true;
    host_name(own, sizeof own);
    size_t plain = strcspn(own, ".");
    return strcasecmp(name, own) == 0 || (strlen(name) == plain && strncasecmp(name, own, plain) == 0);
}

/* "name", "name:2", "[v6]", "[v6]:2". */
static bool parse_piece(const char *text, size_t len, struct host *host)
{
    char piece[HOST_NAME_LEN + 16];
    int64_t count = 1;
    if (len >= sizeof piece)
        return false;
    memcpy(piece, text, len);
    piece[len] = 0;
    char *name = piece, *colon = strchr(piece, ':'), *bracket = strrchr(piece, ']');
    if (piece[0] == '[') {
        if (!bracket || (bracket[1] && bracket[1] != ':'))
            return false;
        name = piece + 1;
        colon = bracket[1] ? bracket + 1 : NULL;
        *bracket = 0;
    } else if (colon && strchr(colon + 1, ':')) {
        colon = NULL; /* an IPv6 address without a count */
    }
    if (colon) {
        *colon = 0;
        if (!args_int(colon + 1, 1, RANKS_MAX, &count))
            return false;
    }
    if (!name_is_good(name, strlen(name)) || strlen(name) >= sizeof host->name)
        return false;
    memcpy(host->name, name, strlen(name) + 1);
    host->count = (int)count;
    return true;
}

const char *host_address(const struct host *host)
{
    const char *at = strchr(host->name, '@');
    return at ? at + 1 : host->name;
}

static void number_machine(struct hosts *hosts, struct host *host)
{
    const struct host *before = hosts->list;
    while (before < host && !(before->local && host->local) &&
           strcasecmp(host_address(before), host_address(host)) != 0)
        before++;
    host->machine = before < host ? before->machine : hosts->machines++;
}

bool hosts_parse(const char *text, struct hosts *hosts, char *why, size_t size)
{
    *hosts = (struct hosts){.count = 0};
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        if (hosts->count == HOSTS_MAX) {
            snprintf(why, size, "more than %d hosts", HOSTS_MAX);
            return false;
        }
        struct host *host = &hosts->list[hosts->count];
        if (!parse_piece(at, len, host)) {
            snprintf(why, size, "'%.*s' is not a host: name, name:COUNT, user@name or [IPv6]:COUNT",
                     (int)(len < HOST_NAME_LEN ? len : HOST_NAME_LEN), at);
            return false;
        }
        host->local = is_local(host);
        number_machine(hosts, host);
        hosts->count++;
        hosts->ranks += host->count;
        at += len;
        if (!*at)
            break;
    }
    return hosts_fill(hosts, 0, why, size);
}

bool hosts_fill(struct hosts *hosts, int count, char *why, size_t size)
{
    if (hosts->ranks > RANKS_MAX || count > RANKS_MAX) {
        snprintf(why, size, "more than %d ranks", RANKS_MAX);
        return false;
    }
    if (count > 0 && count < hosts->ranks) {
        snprintf(why, size, "-n %d is fewer than the %d that --hosts names", count, hosts->ranks);
        return false;
    }
    for (int i = 0; hosts->ranks < count; i = (i + 1) % hosts->count) {
        hosts->list[i].count++;
        hosts->ranks++;
    }
    return true;
}

const struct host *hosts_find(const struct hosts *hosts, int rank)
{
    int i = 0;
    while (i < hosts->count - 1 && rank >= hosts->list[i].count)
        rank -= hosts->list[i++].count;
    return &hosts->list[i];
}
