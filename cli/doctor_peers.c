/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: can the other members be reached from here, by each of their addresses, and they us. */
#include <inttypes.h>
#include <string.h>

#include "cli/doctor.h"
#include "cli/json_read.h"
#include "cli/status_text.h"
#include "os/clock.h"

#define DIALS_MAX    512 /* 64 members with 8 addresses each */
#define DIAL_WAIT_NS (1500 * NS_PER_MS)
#define PROBES_SURE  3 /* after so many from here, some from there must have been told too */

struct dial {
    int64_t rank;
    char address[SOCK_TEXT_MAX];
    int fd; /* -1: decided */
    bool reached;
    struct sock_addr addr;
};

struct doctor_dials {
    struct dial list[DIALS_MAX];
    int count;
};

static void begin(struct doctor_dials *dials, int64_t rank, const char *address)
{
    struct error error;
    if (dials->count >= DIALS_MAX)
        return;
    struct dial *dial = &dials->list[dials->count];
    *dial = (struct dial){.rank = rank, .fd = -1};
    snprintf(dial->address, sizeof dial->address, "%s", address);
    if (sock_addr_parse(address, 0, &dial->addr))
        return; /* no address that can be dialled */
    dials->count++;
    if (sock_dial(&dial->addr, NULL, &dial->fd, &error))
        dial->fd = -1;
}

static void begin_all(struct doctor_dials *dials, const json_t *status)
{
    const json_t *members = json_object_get(json_object_get(status, "view"), "members");
    size_t i, j;
    json_t *member, *address;
    json_array_foreach(members, i, member)
    {
        if (strcmp(json_text_of(member, "state"), "self") == 0)
            continue;
        json_array_foreach(json_object_get(member, "addresses"), j, address) begin(
            dials, json_count_of(member, "rank"), json_is_string(address) ? json_string_value(address) : "");
    }
}

static void finish_all(struct doctor_dials *dials)
{
    uint64_t deadline = clock_real() + DIAL_WAIT_NS;
    struct sock_wait items[DIALS_MAX];
    int waiting = 1;
    while (waiting > 0 && clock_real() < deadline) {
        struct error error;
        waiting = 0;
        for (int i = 0; i < dials->count; i++) {
            items[i] = (struct sock_wait){.fd = dials->list[i].fd, .want_send = true};
            waiting += dials->list[i].fd >= 0;
        }
        if (waiting > 0)
            sock_wait(items, (size_t)dials->count, deadline);
        for (int i = 0; i < dials->count && waiting > 0; i++) {
            struct dial *dial = &dials->list[i];
            int status = items[i].ready ? sock_dialled(dial->fd, &dial->addr, &error) : HEARTH_PENDING;
            if (dial->fd < 0 || status == HEARTH_PENDING)
                continue;
            dial->reached = status == HEARTH_OK;
            sock_close(dial->fd);
            dial->fd = -1;
        }
    }
    for (int i = 0; i < dials->count; i++)
        sock_close(dials->list[i].fd);
}

/* Whether the way between two members was measured, at least so many times. */
static bool path_known(const json_t *status, int64_t from, int64_t to, int64_t probes)
{
    size_t i;
    json_t *link;
    json_array_foreach(json_object_get(status, "links"), i, link)
    {
        if (json_count_of(link, "from") == from && json_count_of(link, "to") == to)
            return json_count_of(link, "probes") >= probes &&
                   (json_real_of(link, "round_trip_us") > 0 || json_real_of(link, "mbit") > 0);
    }
    return false;
}

static int64_t own_rank(const json_t *status)
{
    const json_t *members = json_object_get(json_object_get(status, "view"), "members");
    size_t i;
    json_t *member;
    json_array_foreach(members, i, member)
    {
        if (strcmp(json_text_of(member, "state"), "self") == 0)
            return json_count_of(member, "rank");
    }
    return -1;
}

/* What the dials to one member say; true: one reached it. */
static bool list_dials(const struct doctor_dials *dials, int64_t rank, char *reached, char *missed,
                       size_t size)
{
    reached[0] = missed[0] = 0;
    for (int i = 0; i < dials->count; i++) {
        const struct dial *dial = &dials->list[i];
        char *list = dial->reached ? reached : missed;
        size_t used = strlen(list);
        if (dial->rank == rank)
            snprintf(list + used, size - used, "%s%s", used ? ", " : "", dial->address);
    }
    return reached[0] != 0;
}

static void note_unreached(struct doctor *d, const char *check, const char *missed, bool hears)
{
    if (hears) {
        doctor_note(d, VERDICT_WARN, check,
                    "one way only: it reaches us, and from here nothing at %s answers",
                    missed[0] ? missed : "any address");
        doctor_fix(d, "let tcp 52415-52431 through the firewall of that machine");
        return;
    }
    doctor_note(d, VERDICT_FAIL, check, "not reached, at %s", missed[0] ? missed : "any address");
    doctor_fix(
        d, "see whether it is up (hearth doctor there), and whether its firewall lets tcp 52415-52431 in");
}

static void check_peer(struct doctor *d, const json_t *member, const struct doctor_dials *dials)
{
    char reached[FINDING_TEXT_MAX / 2], missed[FINDING_TEXT_MAX / 2], check[FINDING_CHECK_MAX], name[72];
    int64_t rank = json_count_of(member, "rank"), self = own_rank(d->status);
    bool there = path_known(d->status, self, rank, PROBES_SURE), back = path_known(d->status, rank, self, 0);
    const char *state = json_text_of(member, "state");
    check_about("peer", member_name(d->status, rank, name, sizeof name), check);
    if (!list_dials(dials, rank, reached, missed, sizeof reached)) {
        note_unreached(d, check, missed, back || strcmp(state, "healthy") == 0);
    } else if (there && !back) {
        doctor_note(d, VERDICT_WARN, check,
                    "one way only: from here it is measured (%s), and from there we are not", reached);
        doctor_fix(d, "run hearth doctor there; let tcp 52415-52431 through the firewall of this machine");
    } else if (missed[0]) {
        doctor_note(d, VERDICT_PASS, check, "%s; reached at %s, not at %s", state, reached, missed);
    } else {
        doctor_note(d, VERDICT_PASS, check, "%s; reached at %s", state, reached);
    }
}

static void check_strangers(struct doctor *d)
{
    size_t i;
    json_t *node;
    json_array_foreach(json_object_get(d->status, "nodes"), i, node)
    {
        char check[FINDING_CHECK_MAX];
        const char *name = json_text_of(node, "name"), *why = json_text_of(node, "why");
        if (strcmp(json_text_of(node, "cluster"), "ours") != 0 || json_flag_of(node, "member"))
            continue;
        check_about("peer", name[0] ? name : json_text_of(node, "short"), check);
        doctor_note(d, VERDICT_WARN, check, "seen at %s, and no member: %s", json_text_of(node, "address"),
                    why[0] ? why : "it has not been reached yet");
        doctor_fix(d, "run hearth doctor there too");
    }
}

static void check_view(struct doctor *d)
{
    const json_t *view = json_object_get(d->status, "view");
    const char *state = json_text_of(view, "state"), *why = json_text_of(view, "why");
    bool member = strcmp(state, "member") == 0;
    doctor_note(d, member ? VERDICT_PASS : VERDICT_WARN, "node",
                "a node runs here: %s, epoch %" PRId64 ", %zu member%s%s%s", state,
                json_count_of(view, "epoch"), json_array_size(json_object_get(view, "members")),
                json_array_size(json_object_get(view, "members")) == 1 ? "" : "s", why[0] ? ": " : "", why);
    if (!member)
        doctor_fix(d, "hearth status says who is missing; look at those machines");
}

void doctor_check_peers(struct doctor *doctor)
{
    struct doctor_dials dials = {.count = 0};
    size_t i;
    json_t *member;
    if (!doctor->status) {
        doctor_note(doctor, VERDICT_PASS, "node", "no node runs here, so no peers were looked at: hearth up");
        return;
    }
    check_view(doctor);
    begin_all(&dials, doctor->status);
    finish_all(&dials);
    json_array_foreach(json_object_get(json_object_get(doctor->status, "view"), "members"), i, member)
    {
        if (strcmp(json_text_of(member, "state"), "self") != 0)
            check_peer(doctor, member, &dials);
    }
    check_strangers(doctor);
}
