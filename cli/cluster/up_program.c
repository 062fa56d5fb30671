/* SPDX-License-Identifier: Apache-2.0 */
/* The program of `hearth up`: its job among the machines that are up, where its programs meet, and which have
 * ended or are gone.
 *
 * Each member broadcasts how its program ended, under a tag of its own, and all others wait for that from the
 * beginning: so every member always has an operation in flight, which ends when a machine is lost, and none
 * leaves the group before all programs have ended. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/cluster_plan.h"
#include "cli/cluster/up.h"
#include "cli/shared/args.h"
#include "cli/shared/route.h"
#include "core/bytes.h"
#include "os/clock.h"

#define SLICE_MS     200
#define TAG_END      100                  /* + rank */
#define FOREVER_MS   INT64_C(31536000000) /* a year, the longest that there is */
#define CODE_RUNNING INT32_MIN
#define VARS_MAX     32
#define GRACE_NS     (10 * NS_PER_S) /* from the failure of a program elsewhere to the end of ours */
#define SETTLE_NS    NS_PER_S        /* after the first failure, until those that failed are named */
#define TEXT_MAX     400
#define LEAVE_MS     20 /* the forming thread is interrupted so often: it may not wait yet */

static void say(struct up_program *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct up_program *p, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->say(p->arg, text);
}

/* ---- where to meet ---- */

/* What members tell each other about it. On the wire: the text, then both numbers. */
#define PLACE_LEN (UP_ADDRESS_MAX + 8)
struct up_place {
    char master[UP_ADDRESS_MAX]; /* rank 0, as this member reaches it */
    int32_t first;               /* lowest rank on this member's machine */
    int32_t port;                /* rank 0: two free ports begin there */
};

static void find_place(struct up_program *p, struct up_place *place)
{
    p->local_rank = p->local_size = 0;
    place->first = p->rank;
    for (int rank = 0; rank < p->size; rank++) {
        struct hearth_member member = {.size = sizeof member};
        bool known = hearth_group_member(p->group, rank, &member) == HEARTH_OK;
        bool here = rank == p->rank || (known && member.same_host);
        p->local_rank += here && rank < p->rank;
        p->local_size += here;
        if (here && rank < place->first)
            place->first = rank;
        snprintf(p->names[rank], sizeof p->names[rank], "%s", known ? member.name : "");
        if (rank == 0)
            snprintf(place->master, sizeof place->master, "%s", known ? member.address : "");
    }
    if (p->rank == 0)
        place->port = route_ports();
}

static bool is_six(const char *address)
{
    return strchr(address, ':');
}

/* Rank 0 listens where all others dial: at one address if they agree on one, else at all of its own. */
static void choose_meeting(struct up_program *p, const struct up_place *places)
{
    const char *own = places[p->rank].master, *dialled = p->size > 1 ? places[1].master : NULL;
    bool one = true, mixed = false;
    for (int rank = 2; rank < p->size; rank++) {
        one = one && strcmp(dialled, places[rank].master) == 0;
        mixed = mixed || is_six(places[rank].master) != is_six(dialled);
    }
    if (mixed)
        own = places[0].master; /* by which others may reach it, says rank 0 */
    else if (p->rank == 0 && dialled)
        own = one ? dialled : is_six(dialled) ? "::" : "0.0.0.0";
    p->port = (uint16_t)places[0].port;
    snprintf(p->master, sizeof p->master, "%.*s", UP_ADDRESS_MAX - 1, p->rank == 0 ? places[0].master : own);
    snprintf(p->meeting, sizeof p->meeting, is_six(own) ? "[%.*s]:%u" : "%.*s:%u", UP_ADDRESS_MAX - 16, own,
             p->port + 1U);
    p->host_rank = 0;
    for (int rank = 0; rank < places[p->rank].first; rank++)
        p->host_rank += places[rank].first == rank;
}

bool up_place_good(const char *address, int32_t port)
{
    static const char numeric[] = "0123456789abcdefABCDEF:.", scope[] = "abcdefghijklmnopqrstuvwxyz"
                                                                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                                        "0123456789._-";
    size_t len = strspn(address, numeric);
    if (address[len] == '%' && len > 0)
        len += 1 + strspn(address + len + 1, scope);
    return address[len] == 0 && port >= 0 && port < UINT16_MAX;
}

static void place_encode(const struct up_place *place, uint8_t bytes[static PLACE_LEN])
{
    struct writer w = writer_of(bytes, PLACE_LEN);
    put_bytes(&w, place->master, UP_ADDRESS_MAX);
    put_u32(&w, (uint32_t)place->first);
    put_u32(&w, (uint32_t)place->port);
}

/* false: it cannot be used. */
static bool place_decode(struct up_place *place, const uint8_t bytes[static PLACE_LEN])
{
    struct reader r = reader_of(bytes, PLACE_LEN);
    get_bytes(&r, place->master, UP_ADDRESS_MAX);
    place->master[UP_ADDRESS_MAX - 1] = 0;
    place->first = (int32_t)get_u32(&r);
    place->port = (int32_t)get_u32(&r);
    return up_place_good(place->master, place->port);
}

static int agree(struct up_program *p)
{
    struct up_place places[UP_MEMBERS_MAX] = {{.port = 0}};
    uint8_t bytes[UP_MEMBERS_MAX][PLACE_LEN];
    find_place(p, &places[p->rank]);
    place_encode(&places[p->rank], bytes[p->rank]);
    int status = hearth_all_gather(p->group, bytes[p->rank], bytes, PLACE_LEN, HEARTH_U8, NULL);
    for (int rank = 0; rank < p->size && !status; rank++)
        status = place_decode(&places[rank], bytes[rank]) ? HEARTH_OK : HEARTH_PROTOCOL;
    if (!status)
        choose_meeting(p, places);
    return !status && p->port == 0 ? HEARTH_SYSTEM : status;
}

/* ---- the ends of programs ---- */

static void woken(void *arg, int status)
{
    struct up_program *p = arg;
    (void)status;
    p->former.ring(p->former.ring_arg);
}

/* Tells how ours ended, or waits for that of another. */
static int share_end(struct up_program *p, int rank)
{
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.tag = TAG_END + (uint64_t)rank;
    opts.timeout_ms = rank == p->rank ? opts.timeout_ms : FOREVER_MS;
    opts.done = woken;
    opts.done_arg = p;
    return hearth_broadcast_nb(p->group, &p->codes[rank], 1, HEARTH_I32, rank, &opts, &p->ends[rank]);
}

static int wait_for_ends(struct up_program *p)
{
    int status = HEARTH_OK;
    for (int rank = 0; rank < p->size && !status; rank++) {
        p->codes[rank] = CODE_RUNNING;
        if (rank != p->rank)
            status = share_end(p, rank);
    }
    return status;
}

static void tell_end(struct up_program *p, int code)
{
    p->codes[p->rank] = p->code = code;
    p->told = true;
    p->phase = UP_ENDED;
    (void)share_end(p, p->rank); /* a failure of the call shows in the others' requests too */
}

static void leave_job(struct up_program *p)
{
    for (int rank = 0; rank < UP_MEMBERS_MAX; rank++) {
        hearth_request_close(p->ends[rank]);
        p->ends[rank] = NULL;
    }
    hearth_group_close(p->group);
    p->group = NULL;
}

/* ---- forming: in a thread ---- */

static void note_wait(struct up_program *p, const char *text)
{
    mutex_lock(&p->lock);
    bool changed = strcmp(p->waits, text) != 0;
    snprintf(p->waits, sizeof p->waits, "%s", text);
    p->waits_new = p->waits_new || changed;
    mutex_unlock(&p->lock);
    if (changed)
        p->former.ring(p->former.ring_arg);
}

bool up_once_more(int status)
{
    return status == HEARTH_TIMEOUT || cluster_lost(status);
}

/* In slices, so that what it waits for is said; `quit` interrupts them. */
static int form(struct up_program *p)
{
    hearth_node *node = p->former.node;
    int status = HEARTH_TIMEOUT;
    note_wait(p, "");
    while (up_once_more(status) && !atomic_load(&p->former.quit)) {
        status = hearth_node_wait_for_peers(node, p->min - 1, SLICE_MS);
        if (status)
            continue;
        status = hearth_group_form(node, p->job, p->min, NULL, &p->group);
        if (up_once_more(status))
            note_wait(p, hearth_error_text());
    }
    return atomic_load(&p->former.quit) && up_once_more(status) ? HEARTH_CANCELLED : status;
}

/* After an error there is no group. */
static void form_job(void *arg)
{
    struct up_program *p = arg;
    int status;
    p->told = false;
    do {
        status = form(p);
        if (status)
            break;
        p->rank = hearth_group_rank(p->group);
        p->size = hearth_group_size(p->group);
        status = p->size <= UP_MEMBERS_MAX ? agree(p) : HEARTH_LIMIT;
        if (!status)
            status = wait_for_ends(p);
        if (status)
            leave_job(p);
    } while (up_once_more(status));
    snprintf(p->why, sizeof p->why, "%s", status ? hearth_error_text() : "");
    p->formed = status;
}

/* ---- running ---- */

static void finish(struct up_program *p, int code)
{
    p->phase = UP_OVER;
    p->code = code;
}

static void begin_forming(struct up_program *p)
{
    p->phase = UP_FORMING;
    p->grace_ns = p->failed_ns = 0;
    if (node_call_start(&p->former))
        return;
    say(p, "no thread to wait for the others");
    finish(p, EXIT_FAILED_CHECK);
}

/* What the program gets to know of its place. */
static void add_vars(const struct up_program *p, struct vars *vars)
{
    const struct rank_place place = {p->rank,    p->size, p->local_rank, p->local_size, p->host_rank,
                                     p->meeting, p->job,  p->master,     p->port};
    vars_add_place(vars, &place);
    vars_add(vars, "HEARTH_DISCOVER=off");
    vars_add(vars, "HEARTH_PLAIN=0");
    if (p->bind)
        vars_add(vars, "HEARTH_BIND=%s", p->bind);
    if (p->local_size > 1 && !getenv("OMP_NUM_THREADS"))
        vars_add(vars, "OMP_NUM_THREADS=1"); /* as hearth run does */
    if (p->handover->file[0])                /* where the trust list is, too */
        vars_add(vars, "HEARTH_SECRET_FILE=%s", p->handover->file);
}

static bool start_child_process(struct up_program *p)
{
    struct vars vars;
    if (!vars_open(&vars, VARS_MAX))
        return false;
    add_vars(p, &vars);
    struct child_process_plan plan = {.vars = vars.list, .args = p->args, .rank = p->rank};
    plan.secret = p->handover->file[0] ? NULL : p->handover->secret;
    bool good = !vars.full && child_process_start(&p->child, &plan, &p->output);
    vars_free(vars.list);
    if (!good)
        say(p, "cannot start %s: %s", p->args[0], p->child.why);
    return good;
}

static void begin_running(struct up_program *p)
{
    say(p, "job %s: rank %d of %d, rendezvous %s", p->job, p->rank, p->size, p->meeting);
    if (p->has_output)
        output_close(&p->output);
    p->has_output = output_open(&p->output, p->size, true, NULL);
    p->output.idle = p->idle;
    p->output.arg = p->arg;
    p->phase = UP_RUNNING;
    if (!p->has_output || !start_child_process(p))
        tell_end(p, EXIT_FAILED_CHECK);
}

static void tend_forming(struct up_program *p)
{
    char text[sizeof p->waits];
    bool done = node_call_take(&p->former);
    mutex_lock(&p->lock);
    bool news = p->waits_new && p->waits[0] && !done;
    snprintf(text, sizeof text, "%s", p->waits);
    p->waits_new = false;
    mutex_unlock(&p->lock);
    if (news)
        say(p, "%s", text);
    if (!done && p->quit)
        hearth_node_interrupt(p->former.node);
    if (!done)
        return;
    if (p->quit) {
        if (!p->formed)
            leave_job(p);
        finish(p, 128 + p->quit);
    } else if (p->formed) {
        say(p, "job %s cannot be formed: %s", p->job, p->why[0] ? p->why : hearth_status_text(p->formed));
        finish(p, EXIT_FAILED_CHECK);
    } else {
        begin_running(p);
    }
}

/* ---- ending ---- */

static void stop(struct up_program *p, bool again)
{
    p->again = again && !p->quit;
    p->phase = UP_STOPPING;
    child_process_stop(&p->child);
}

static void tend_stopping(struct up_program *p)
{
    if (!child_process_over(&p->child))
        return;
    leave_job(p);
    if (p->again)
        begin_forming(p);
    else
        finish(p, p->child.code);
}

/* Our program has ended by itself. */
static void take_end(struct up_program *p)
{
    const struct child_process *child = &p->child;
    if (child->why[0])
        say(p, "our program (rank %d): %s", p->rank, child->why);
    else if (child->signal && !child->asked)
        say(p, "our program (rank %d) was killed by signal %d (%s)", p->rank, child->signal,
            strsignal(child->signal));
    else if (child->code && !child->asked)
        say(p, "our program (rank %d) exited with code %d", p->rank, child->code);
    tell_end(p, child->code);
}

static void take_loss(struct up_program *p, int rank)
{
    bool known = rank >= 0 && rank < p->size && p->names[rank][0];
    if (p->phase == UP_ENDED && p->code == EXIT_GOOD) { /* ours is done, whatever becomes of the others */
        leave_job(p);
        finish(p, EXIT_GOOD);
        return;
    }
    say(p, "%s is lost%s", known ? p->names[rank] : "a machine",
        p->once ? "; ending the program" : "; the program starts again with those that are left");
    stop(p, !p->once);
}

static bool has_failed(const struct up_program *p, int rank)
{
    bool ended = rank == p->rank ? p->told : p->ends[rank] && hearth_request_test(p->ends[rank]) == HEARTH_OK;
    return ended && p->codes[rank] != 0;
}

/* The programs that are known to have failed: "anna (rank 0, exit code 1) and ben (rank 2, exit code 1)". A
 * program whose neighbour fails often ends sooner than that one, so only all together tell what happened. How
 * many they are. */
static int list_failures(const struct up_program *p, char *text, size_t size)
{
    int count = 0, named = 0;
    for (int rank = 0; rank < p->size; rank++)
        count += has_failed(p, rank);
    text[0] = 0;
    for (int rank = 0; rank < p->size && named < count; rank++) {
        char name[128];
        if (!has_failed(p, rank))
            continue;
        snprintf(name, sizeof name, "%s (rank %d, exit code %d)",
                 p->names[rank][0] ? p->names[rank] : "a machine", rank, p->codes[rank]);
        name_list_add(text, size, name, named++, count);
    }
    return count;
}

/* A moment later than the first, so that the one that made others fail is among them. */
static void take_failures(struct up_program *p)
{
    char text[TEXT_MAX];
    uint64_t now = clock_real();
    if (p->failed_ns == 0)
        p->failed_ns = now;
    if (p->phase != UP_RUNNING || p->grace_ns != 0 || now < p->failed_ns + SETTLE_NS)
        return;
    bool one = list_failures(p, text, sizeof text) == 1;
    say(p, "the program%s of %s ha%s failed; ours has 10 s to end by itself", one ? "" : "s", text,
        one ? "s" : "ve");
    p->grace_ns = now + GRACE_NS;
}

static void take_over(struct up_program *p)
{
    char text[TEXT_MAX];
    if (list_failures(p, text, sizeof text) > 0)
        say(p, "job %s has ended; failed: %s", p->job, text);
    leave_job(p);
    finish(p, p->code);
}

static void watch(struct up_program *p)
{
    int running = 0;
    bool failed = false;
    for (int rank = 0; rank < p->size; rank++) {
        int status = p->ends[rank]                ? hearth_request_test(p->ends[rank])
                     : rank == p->rank && p->told ? HEARTH_OK
                                                  : HEARTH_PENDING;
        if (status && status != HEARTH_PENDING) {
            take_loss(p, hearth_request_error_rank(p->ends[rank]));
            return;
        }
        failed = failed || has_failed(p, rank);
        running += status == HEARTH_PENDING;
    }
    if (running == 0)
        take_over(p);
    else if (failed)
        take_failures(p);
}

void up_program_tend(struct up_program *p)
{
    if (p->phase == UP_FORMING)
        tend_forming(p);
    if (p->phase == UP_RUNNING || p->phase == UP_STOPPING)
        child_process_tend(&p->child);
    if (p->phase == UP_RUNNING && child_process_over(&p->child))
        take_end(p);
    if (p->phase == UP_RUNNING || p->phase == UP_ENDED)
        watch(p);
    if (p->phase == UP_RUNNING && p->grace_ns && clock_real() >= p->grace_ns)
        child_process_stop(&p->child);
    if (p->phase == UP_STOPPING)
        tend_stopping(p);
}

/* ---- for the loop ---- */

bool up_program_open(struct up_program *p)
{
    p->former.work = form_job;
    p->former.arg = p;
    if (mutex_init(&p->lock))
        return false;
    say(p, "job %s: waiting until %d machine%s there", p->job, p->min, p->min == 1 ? " is" : "s are");
    begin_forming(p);
    return true;
}

void up_program_polls(const struct up_program *p, struct pollfd polls[CHILD_PROCESS_POLLS])
{
    for (int i = 0; i < CHILD_PROCESS_POLLS; i++)
        polls[i] = (struct pollfd){.fd = -1};
    if (p->phase == UP_RUNNING || p->phase == UP_STOPPING)
        child_process_polls(&p->child, polls);
}

int up_program_patience_ms(const struct up_program *p)
{
    if (p->phase == UP_FORMING && p->quit)
        return LEAVE_MS;
    return p->phase == UP_RUNNING || p->phase == UP_STOPPING ? child_process_patience_ms(&p->child) : -1;
}

void up_program_quit(struct up_program *p, int number)
{
    p->quit = number;
    p->again = false;
    atomic_store(&p->former.quit, true);
    if (p->phase == UP_RUNNING || p->phase == UP_ENDED)
        stop(p, false);
}

bool up_program_close(struct up_program *p)
{
    if (!node_call_end(&p->former))
        return false;
    if (p->has_output)
        output_close(&p->output);
    mutex_fini(&p->lock);
    return true;
}
