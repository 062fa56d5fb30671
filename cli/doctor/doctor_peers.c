/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: can the other members be reached from here, by each of their addresses, and they us. */
#include <inttypes.h>
#include <string.h>

#include "cli/cluster/status_text.h"
#include "cli/doctor/doctor.h"
#include "cli/shared/json.h"
#include "connect/dial_driver.h"
#include "os/clock.h"

#define DIALS_MAX    512 /* 64 members with 8 addresses each */
#define DIAL_WAIT_NS (1500 * NS_PER_MS)
#define PROBES_SURE  3 /* after so many from here, some from there must have been told too */

struct dial {
    int64_t rank;
    char address[SOCK_TEXT_MAX];
    struct sock_addr addr;
    struct dial_target target;
    bool reached;
};

struct doctor_dials {
    struct dial_driver driver;
    struct dial list[DIALS_MAX];
    int count;
};

static bool is_self(const json_t *member)
{
    return strcmp(json_text_of(member, "state"), "self") == 0;
}

static void request(void *arg, const struct dial_target *target, struct dial_request *out)
{
    const struct doctor_dials *dials = arg;
    *out = (struct dial_request){.addr = dials->list[target->key].addr};
}

static void begin(struct doctor_dials *dials, int64_t rank, const char *address)
{
    if (dials->count >= DIALS_MAX)
        return;
    struct dial *dial = &dials->list[dials->count];
    *dial = (struct dial){.rank = rank};
    snprintf(dial->address, sizeof dial->address, "%s", address);
    if (sock_addr_parse(address, 0, &dial->addr))
        return; /* no address that can be dialled */
    dial_target_init(&dial->target, (uint32_t)dials->count++);
    dialer_want(&dials->driver.dialer, &dial->target, 0);
}

static void begin_all(struct doctor_dials *dials, const json_t *status)
{
    size_t i, j;
    json_t *member, *address;
    json_array_foreach(members_of(status), i, member)
    {
        if (is_self(member))
            continue;
        json_array_foreach(json_object_get(member, "addresses"), j, address) begin(
            dials, json_count_of(member, "rank"), json_is_string(address) ? json_string_value(address) : "");
    }
}

/* Each address has one attempt. */
static void finish_all(struct doctor_dials *dials)
{
    uint64_t now = clock_real(), deadline = now + DIAL_WAIT_NS;
    struct sock_wait items[DIAL_ATTEMPTS_MAX];
    struct dial_event event;
    int waiting = dials->count;
    for (; waiting > 0 && now < deadline; now = clock_real()) {
        uint64_t until = deadline;
        dial_pump(&dials->driver, now);
        while (dial_next(&dials->driver, &event)) {
            if (event.kind == DIAL_CONNECTED)
                continue;
            dials->list[event.target->key].reached = event.kind == DIAL_SECURED;
            secure_stream_close(event.stream);
            dialer_kept(&dials->driver.dialer, event.target, 0, now);
            waiting--;
        }
        size_t count = dial_waits(&dials->driver, items, DIAL_ATTEMPTS_MAX, &until);
        if (waiting > 0)
            sock_wait(items, count, until);
    }
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

static void check_peer(struct doctor *d, const json_t *member, const struct doctor_dials *dials)
{
    char reached[FINDING_TEXT_MAX / 4], missed[FINDING_TEXT_MAX / 4], name[72];
    int64_t rank = json_count_of(member, "rank"), self = own_rank(d->status);
    bool there = path_known(d->status, self, rank, PROBES_SURE), back = path_known(d->status, rank, self, 0);
    const char *state = json_text_of(member, "state");
    bool found = list_dials(dials, rank, reached, missed, sizeof reached);
    d->about = member_name(d->status, rank, name, sizeof name);
    if (!found && (back || strcmp(state, "healthy") == 0))
        doctor_note(d, WARN, "peer",
                    "one direction only: it reaches us, and from here nothing at %s answers" FIX
                    "let tcp 52415-52431 through the firewall of that machine",
                    missed[0] ? missed : "any address");
    else if (!found)
        doctor_note(d, FAIL, "peer",
                    "not reached, at %s" FIX "see whether it is up (hearth doctor there), and whether its "
                    "firewall lets tcp 52415-52431 in",
                    missed[0] ? missed : "any address");
    else if (there && !back)
        doctor_note(d, WARN, "peer",
                    "one direction only: from here it is measured (%s), and from there we are not" FIX
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
    struct dialer_setup setup = {
        .attempts_max = DIAL_ATTEMPTS_MAX,
        .drops_slow = true,
        .connect_ns = DIAL_WAIT_NS,
        .slow_connect_ns = DIAL_WAIT_NS / 3, /* of more addresses than can be dialled at once */
    };
    struct doctor_dials dials = {.count = 0};
    struct heap heap;
    size_t i;
    json_t *member;
    if (!doctor->status) {
        doctor_note(doctor, PASS, "node", "no node runs here, so no peers were looked at: hearth up");
        return;
    }
    check_view(doctor);
    heap_init(&heap, 0);
    if (dial_driver_open(&dials.driver, &heap, &setup, request, &dials) == HEARTH_OK) {
        begin_all(&dials, doctor->status);
        finish_all(&dials);
    }
    dial_driver_close(&dials.driver);
    json_array_foreach(members_of(doctor->status), i, member)
    {
        if (!is_self(member))
            check_peer(doctor, member, &dials);
    }
    check_strangers(doctor);
}
