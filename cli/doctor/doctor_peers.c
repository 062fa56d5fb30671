/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: can the other members be reached from here, by each of their addresses, and they us. */
#include <inttypes.h>
#include <string.h>

#include "cli/cluster/status_text.h"
#include "cli/doctor/doctor.h"
#include "cli/shared/json.h"
#include "os/clock.h"
#include "os/sock.h"

#define DIALS_MAX    512 /* 64 members with 8 addresses each */
#define DIAL_WAIT_NS (1500 * NS_PER_MS)
#define PROBES_SURE  3 /* after so many from here, some from there must have been told too */

struct dials {
    struct dial {
        int64_t rank;
        const char *address; /* lent by the status */
        struct sock_addr addr;
        bool reached;
    } list[DIALS_MAX];
    struct sock_wait waits[DIALS_MAX];
    size_t count;
};

static bool is_self(const json_t *member)
{
    return strcmp(json_text_of(member, "state"), "self") == 0;
}

static void begin(struct dials *dials, int64_t rank, const char *address)
{
    struct error error;
    if (dials->count >= DIALS_MAX)
        return;
    struct dial *dial = &dials->list[dials->count];
    struct sock_wait *wait = &dials->waits[dials->count];
    *dial = (struct dial){.rank = rank, .address = address};
    *wait = (struct sock_wait){.fd = -1, .want_send = true};
    if (sock_addr_parse(address, 0, &dial->addr))
        return; /* no address that can be dialled */
    if (sock_dial(&dial->addr, NULL, &wait->fd, &error))
        wait->fd = -1;
    dials->count++;
}

/* Each address has one attempt, all at once. */
static void dial_all(struct dials *dials, const json_t *status)
{
    uint64_t deadline = clock_real() + DIAL_WAIT_NS;
    struct error error;
    size_t i, j, waiting;
    json_t *member, *address;
    json_array_foreach(members_of(status), i, member)
    {
        json_array_foreach(is_self(member) ? NULL : json_object_get(member, "addresses"), j, address) begin(
            dials, json_count_of(member, "rank"), json_is_string(address) ? json_string_value(address) : "");
    }
    for (bool over = false; !over; over = clock_real() >= deadline || waiting == 0) {
        waiting = 0;
        sock_wait(dials->waits, dials->count, deadline);
        for (i = 0; i < dials->count; i++) {
            struct sock_wait *wait = &dials->waits[i];
            if (wait->fd >= 0 && wait->ready) {
                dials->list[i].reached = sock_dialled(wait->fd, &dials->list[i].addr, &error) == HEARTH_OK;
                sock_close(wait->fd);
                wait->fd = -1;
            }
            waiting += wait->fd >= 0;
        }
    }
    for (i = 0; i < dials->count; i++)
        sock_close(dials->waits[i].fd);
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
    size_t i;
    json_t *member;
    json_array_foreach(members_of(status), i, member)
    {
        if (is_self(member))
            return json_count_of(member, "rank");
    }
    return -1;
}

/* What the dials to one member say; true: one reached it. */
static bool list_dials(const struct dials *dials, int64_t rank, char *reached, char *missed, size_t size)
{
    reached[0] = missed[0] = 0;
    for (size_t i = 0; i < dials->count; i++) {
        const struct dial *dial = &dials->list[i];
        char *list = dial->reached ? reached : missed;
        size_t used = strlen(list);
        if (dial->rank == rank)
            snprintf(list + used, size - used, "%s%s", used ? ", " : "", dial->address);
    }
    return reached[0] != 0;
}

static void check_peer(struct doctor *d, const json_t *member, const struct dials *dials)
{
    char reached[FINDING_TEXT_MAX / 4], missed[FINDING_TEXT_MAX / 4], name[72];
    int64_t rank = json_count_of(member, "rank"), self = own_rank(d->status);
    bool there = path_known(d->status, self, rank, PROBES_SURE), back = path_known(d->status, rank, self, 0);
    const char *state = json_text_of(member, "state");
    bool found = list_dials(dials, rank, reached, missed, sizeof reached);
    d->about = member_name(d->status, rank, name, sizeof name);
    if (!found && (back || strcmp(state, "healthy") == 0))
        doctor_note(d, WARN, "peer",
                    "one way only: it reaches us, and from here nothing at %s answers" FIX
                    "let tcp 52415-52431 through the firewall of that machine",
                    missed[0] ? missed : "any address");
    else if (!found)
        doctor_note(d, FAIL, "peer",
                    "not reached, at %s" FIX "see whether it is up (hearth doctor there), and whether its "
                    "firewall lets tcp 52415-52431 in",
                    missed[0] ? missed : "any address");
    else if (there && !back)
        doctor_note(d, WARN, "peer",
                    "one way only: from here it is measured (%s), and from there we are not" FIX
                    "run hearth doctor there; let tcp 52415-52431 through the firewall of this machine",
                    reached);
    else
        doctor_note(d, PASS, "peer", "%s; reached at %s%s%s", state, reached, missed[0] ? ", not at " : "",
                    missed);
    d->about = NULL;
}

static void check_strangers(struct doctor *d)
{
    size_t i;
    json_t *node;
    json_array_foreach(json_object_get(d->status, "nodes"), i, node)
    {
        const char *name = json_text_of(node, "name"), *why = json_text_of(node, "why");
        if (strcmp(json_text_of(node, "cluster"), "ours") != 0 || json_flag_of(node, "member"))
            continue;
        d->about = name[0] ? name : json_text_of(node, "short");
        doctor_note(d, WARN, "peer", "seen at %s, and no member: %s" FIX "run hearth doctor there too",
                    json_text_of(node, "address"), why[0] ? why : "it has not been reached yet");
    }
    d->about = NULL;
}

static void check_view(struct doctor *d)
{
    const json_t *view = json_object_get(d->status, "view");
    const char *state = json_text_of(view, "state"), *why = json_text_of(view, "why");
    bool member = strcmp(state, "member") == 0;
    size_t count = json_array_size(members_of(d->status));
    doctor_note(d, member ? PASS : WARN, "node",
                "a node runs here: %s, epoch %" PRId64 ", %zu member%s%s%s%s", state,
                json_count_of(view, "epoch"), count, count == 1 ? "" : "s", why[0] ? ": " : "", why,
                member ? "" : FIX "hearth status says which are missing; look at those machines");
}

void doctor_check_peers(struct doctor *doctor)
{
    struct dials dials = {.count = 0};
    size_t i;
    json_t *member;
    if (!doctor->status) {
        doctor_note(doctor, PASS, "node", "no node runs here, so no peers were looked at: hearth up");
        return;
    }
    check_view(doctor);
    dial_all(&dials, doctor->status);
    json_array_foreach(members_of(doctor->status), i, member)
    {
        if (!is_self(member))
            check_peer(doctor, member, &dials);
    }
    check_strangers(doctor);
}
