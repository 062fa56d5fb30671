/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of random sizes and tags among five processes, through shared memory, through tcp with TLS, and
 * through both: each is received once, whole, in the order of its sender and tag; also if a member is killed
 * or frozen, and then every request ends, and what a failed send says of its message is true. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "process/team.h"
#include "support/ports.h"
#include "support/watchdog.h"

#define MEMBERS         5
#define TAGS            4 /* the last is received from any rank */
#define LEN_MAX         ((size_t)16 << 20)
#define POOL_LEN        ((size_t)24 << 20) /* all messages are cut out of it */
#define SENDS           32                 /* of a member in flight */
#define ROWS            (MEMBERS * (TAGS - 1) + 2)
#define AHEAD           2 /* receives of a row in flight */
#define LOOK_AHEAD      4096
#define PEER_TIMEOUT_MS 2000
#define PATIENCE_MS     60000 /* against hanging */

enum strike { STRIKE_NONE, STRIKE_KILL, STRIKE_FREEZE, STRIKE_NAP };

struct storm {
    uint64_t seed;
    uint32_t count; /* of each member's messages */
    bool mixed;     /* the last two members are on another host */
    uint16_t port;  /* of the rendezvous, if mixed */
    enum strike strike;
    int victim;
    uint8_t *outcome;            /* [MEMBERS][count]: how the send ended */
    _Atomic(uint8_t) *delivered; /* [MEMBERS][count]: how often it was received */
};

enum outcome { OPEN, SENT, RECEIVED, NOT_DELIVERED, UNKNOWN };

/* ---- what is sent ---- */

struct parcel {
    int to;
    uint64_t tag;
    bool apart; /* in the second group, where receives take anything */
    bool sync;
    size_t len, offset; /* in the pool */
};

static size_t draw_size(uint64_t *seed)
{
    if (draw_below(seed, 10) == 0)
        return 0;
    unsigned power =
        draw_below(seed, 1000) == 0 ? 16 + (unsigned)draw_below(seed, 9) : (unsigned)draw_below(seed, 15);
    size_t base = (size_t)1 << power, len = base + draw_below(seed, base);
    return len < LEN_MAX ? len : LEN_MAX;
}

/* The same for all that ask. */
static struct parcel parcel_of(const struct storm *s, int from, uint32_t number)
{
    uint64_t seed = s->seed * 1000003 + ((uint64_t)from << 40) + number;
    draw_below(&seed, 2);
    struct parcel p = {.to = (from + 1 + (int)draw_below(&seed, MEMBERS - 1)) % MEMBERS};
    p.tag = draw_below(&seed, TAGS);
    p.apart = draw_below(&seed, 6) == 0;
    p.sync = draw_below(&seed, 4) == 0;
    p.len = draw_size(&seed);
    p.offset = draw_below(&seed, POOL_LEN - p.len);
    return p;
}

static void pool_fill(uint8_t *pool, uint64_t seed)
{
    uint64_t x = seed;
    for (size_t i = 0; i < POOL_LEN; i += 8) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t mixed = x ^ x >> 29;
        memcpy(pool + i, &mixed, 8);
    }
}

/* ---- a member ---- */

struct slot {
    hearth_request *request;
    struct hearth_received received;
    struct hearth_message *message;
    uint8_t *buffer;
};

/* Receives of one kind, in order: of one sender and tag, of one tag, of the second group. */
struct row {
    int from;
    uint64_t tag;
    bool apart;
    uint32_t left; /* messages for which no receive is posted */
    struct slot slots[AHEAD];
    uint32_t first, count;
};

struct member {
    struct team *team;
    const struct storm *storm;
    int rank;
    hearth_group *world, *apart;
    uint8_t *pool;
    uint64_t seed;
    bool failed; /* the group is over */
    uint32_t next;
    struct {
        hearth_request *request;
        uint32_t number;
        bool sync;
    } sends[SENDS];
    struct row rows[ROWS];
    uint32_t seen[MEMBERS][2][TAGS]; /* number behind the last that came, of each sender, group and tag */
};

static void row_of_each(struct member *m)
{
    int count = 0;
    for (int from = 0; from < MEMBERS; from++)
        for (uint64_t tag = 0; tag < TAGS - 1; tag++)
            m->rows[count++] = (struct row){.from = from, .tag = tag};
    m->rows[count++] = (struct row){.from = HEARTH_ANY_RANK, .tag = TAGS - 1};
    m->rows[count++] = (struct row){.from = HEARTH_ANY_RANK, .tag = HEARTH_ANY_TAG, .apart = true};
    for (int from = 0; from < MEMBERS; from++)
        for (uint32_t i = 0; i < m->storm->count; i++) {
            struct parcel p = parcel_of(m->storm, from, i);
            if (from == m->rank || p.to != m->rank)
                continue;
            int row = p.apart ? ROWS - 1 : p.tag == TAGS - 1 ? ROWS - 2 : from * (TAGS - 1) + (int)p.tag;
            m->rows[row].left++;
        }
}

/* The next message of its sender and tag; after a fault some may be missing. */
static void received(struct member *m, const struct slot *slot, bool apart)
{
    const struct storm *s = m->storm;
    int from = slot->message ? slot->message->rank : slot->received.rank;
    uint64_t tag = slot->message ? slot->message->tag : slot->received.tag;
    size_t len = slot->message ? slot->message->len : slot->received.len;
    const uint8_t *bytes = slot->message ? slot->message->data : slot->buffer;
    if (!check(from >= 0 && from < MEMBERS && tag < TAGS, "a message of rank %d", from))
        return;
    uint32_t *seen = &m->seen[from][apart][tag];
    for (uint32_t i = *seen, skipped = 0; i < s->count && skipped <= (m->failed ? LOOK_AHEAD : 0); i++) {
        struct parcel p = parcel_of(s, from, i);
        if (p.to != m->rank || p.tag != tag || p.apart != apart)
            continue;
        skipped++;
        if (p.len != len || (len > 0 && memcmp(bytes, m->pool + p.offset, len) != 0))
            continue;
        *seen = i + 1;
        check(atomic_fetch_add(&s->delivered[(size_t)from * s->count + i], 1) == 0,
              "message %u of rank %d came twice", i, from);
        return;
    }
    check(false, "seed %llu: rank %d: %zu bytes from rank %d with tag %llu are not what comes next",
          (unsigned long long)s->seed, m->rank, len, from, (unsigned long long)tag);
}

static void slot_free(struct slot *slot)
{
    hearth_request_close(slot->request);
    hearth_message_free(slot->message);
    free(slot->buffer);
    *slot = (struct slot){0};
}

/* Whoever asks for one sender and tag knows the length; others take what comes. */
static void post(struct member *m, struct row *row)
{
    struct slot *slot = &row->slots[(row->first + row->count) % AHEAD];
    hearth_group *group = row->apart ? m->apart : m->world;
    *slot = (struct slot){.received.size = sizeof slot->received};
    int status;
    if (row->from == HEARTH_ANY_RANK || draw_below(&m->seed, 4) == 0) {
        status = hearth_message_recv_nb(group, row->from, row->tag, NULL, &slot->message, &slot->request);
    } else {
        size_t len = LEN_MAX;
        slot->buffer = malloc(len);
        status = hearth_recv_nb(group, row->from, row->tag, slot->buffer, len, NULL, &slot->received,
                                &slot->request);
    }
    if (status == HEARTH_OK) {
        row->left--;
        row->count++;
        return;
    }
    m->failed = true;
    slot_free(slot);
}

static void send_next(struct member *m, int at)
{
    const struct storm *s = m->storm;
    struct parcel p = parcel_of(s, m->rank, m->next);
    struct hearth_opts opts = opts_default();
    opts.flags = p.sync ? HEARTH_FLAG_SYNC_SEND : 0;
    opts.priority = (enum hearth_priority)draw_below(&m->seed, 3);
    m->sends[at].number = m->next;
    m->sends[at].sync = p.sync;
    uint8_t *bytes = m->pool + p.offset;
    hearth_group *group = p.apart ? m->apart : m->world;
    int status;
    if (draw_below(&m->seed, 4) == 0) {
        size_t cut = draw_below(&m->seed, p.len + 1);
        struct hearth_iovec parts[] = {{bytes, cut}, {bytes + cut, p.len - cut}};
        status = hearth_sendv_nb(group, p.to, p.tag, parts, 2, &opts, &m->sends[at].request);
    } else {
        status = hearth_send_nb(group, p.to, p.tag, bytes, p.len, &opts, &m->sends[at].request);
    }
    if (status == HEARTH_OK) {
        m->next++;
        return;
    }
    s->outcome[(size_t)m->rank * s->count + m->next] = NOT_DELIVERED;
    m->sends[at].request = NULL;
    m->failed = true;
}

static void fault_expected(struct member *m, int status, const char *text)
{
    check(m->storm->strike == STRIKE_KILL || m->storm->strike == STRIKE_FREEZE, "rank %d: %s: %s", m->rank,
          hearth_status_name(status), text);
    m->failed = true;
}

static void sent(struct member *m, int at, int status)
{
    const struct storm *s = m->storm;
    uint8_t *outcome = &s->outcome[(size_t)m->rank * s->count + m->sends[at].number];
    enum hearth_fate fate = hearth_request_error_fate(m->sends[at].request);
    *outcome = status == HEARTH_OK                 ? (m->sends[at].sync ? RECEIVED : SENT)
               : fate == HEARTH_FATE_NOT_DELIVERED ? NOT_DELIVERED
               : fate == HEARTH_FATE_DELIVERED     ? RECEIVED
                                                   : UNKNOWN;
    if (status != HEARTH_OK)
        fault_expected(m, status, hearth_request_error(m->sends[at].request));
    hearth_request_close(m->sends[at].request);
    m->sends[at].request = NULL;
}

/* In order; the later ones of the row wait. */
static void row_look(struct member *m, struct row *row)
{
    while (row->count > 0) {
        struct slot *slot = &row->slots[row->first];
        int status = hearth_request_test(slot->request);
        if (status == HEARTH_PENDING)
            return;
        if (status == HEARTH_OK)
            received(m, slot, row->apart);
        else
            fault_expected(m, status, hearth_request_error(slot->request));
        atomic_fetch_add(&m->team->board->notes[m->rank].rounds, 1);
        slot_free(slot);
        row->first = (row->first + 1) % AHEAD;
        row->count--;
    }
}

/* Everything that is in flight. */
static size_t requests(const struct member *m, hearth_request **out)
{
    size_t count = 0;
    for (int i = 0; i < SENDS; i++)
        if (m->sends[i].request)
            out[count++] = m->sends[i].request;
    for (int r = 0; r < ROWS; r++)
        for (uint32_t k = 0; k < m->rows[r].count; k++)
            out[count++] = m->rows[r].slots[(m->rows[r].first + k) % AHEAD].request;
    return count;
}

static void fill_up(struct member *m)
{
    for (int r = 0; r < ROWS; r++)
        while (!m->failed && m->rows[r].left > 0 && m->rows[r].count < AHEAD)
            post(m, &m->rows[r]);
    for (int i = 0; i < SENDS && !m->failed && m->next < m->storm->count; i++)
        if (!m->sends[i].request)
            send_next(m, i);
}

static void work(struct member *m)
{
    hearth_request *all[SENDS + ROWS * AHEAD];
    size_t index, count;
    fill_up(m);
    atomic_store(&m->team->board->notes[m->rank].ready, true);
    while ((count = requests(m, all)) > 0) {
        int status = hearth_request_wait_any(all, count, PATIENCE_MS * slow_factor(), &index);
        if (!check(status != HEARTH_PENDING, "seed %llu: rank %d: %zu requests do not end",
                   (unsigned long long)m->storm->seed, m->rank, count))
            return;
        for (int i = 0; i < SENDS; i++) {
            int ended = m->sends[i].request ? hearth_request_test(m->sends[i].request) : HEARTH_PENDING;
            if (ended != HEARTH_PENDING)
                sent(m, i, ended);
        }
        for (int r = 0; r < ROWS; r++)
            row_look(m, &m->rows[r]);
        fill_up(m);
    }
}

/* Another user is another host: tcp goes there, and shared memory stays among the others. */
static void check_links(const struct member *m, hearth_node *node)
{
    char text[4096];
    hearth_node_links_text(node, text, sizeof text);
    check(strstr(text, "shm") && strstr(text, "tcp+tls"), "rank %d has not both kinds of links:\n%s", m->rank,
          text);
}

static void be_another_user(void)
{
    check(seteuid(65534) == 0, "no other user");
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* forgotten with the user */
#endif
}

static void member(struct team *team, int rank, void *arg)
{
    static struct member self;
    const struct storm *s = arg;
    self = (struct member){.team = team, .storm = s, .rank = rank, .seed = s->seed + (uint64_t)rank};
    setenv("HEARTH_SECRET", TEAM_SECRET, 1);
    if (s->strike == STRIKE_FREEZE)
        set_number_env("HEARTH_PEER_TIMEOUT_MS", PEER_TIMEOUT_MS * slow_factor());
    if (s->mixed) { /* unix sockets of other users are not looked for */
        char address[32];
        snprintf(address, sizeof address, "127.0.0.1:%u", s->port);
        setenv("HEARTH_RENDEZVOUS", address, 1);
        if (rank >= MEMBERS - 2)
            be_another_user();
    }
    hearth_node *node = member_open();
    if (!node)
        return;
    self.world = hearth_node_world(node);
    self.pool = rank % 2 ? hearth_mem_alloc(node, POOL_LEN) : malloc(POOL_LEN);
    pool_fill(self.pool, s->seed);
    row_of_each(&self);
    if (s->mixed)
        check_links(&self, node);
    check_ok(hearth_group_split(self.world, 0, 0, NULL, &self.apart));
    if (self.apart)
        work(&self);
    if (s->strike == STRIKE_NONE || s->strike == STRIKE_NAP)
        check_ok(hearth_barrier(self.world, NULL));
    hearth_group_close(self.apart);
    hearth_node_close(node);
    if (rank % 2 == 0)
        free(self.pool);
    check(!s->mixed || seteuid(0) == 0, "no way back"); /* who looks for leaks must be allowed to */
}

/* ---- the test's side ---- */

static void strike(struct team *team, const struct storm *s)
{
    uint64_t seed = s->seed ^ 0xfa11;
    uint64_t rounds = draw_below(&seed, s->count / 2 + 1);
    for (int i = 0; i < 60000 && atomic_load(&team->board->notes[s->victim].rounds) < rounds; i++)
        sleep_ms(1);
    if (s->strike == STRIKE_KILL) {
        team_kill(team, s->victim, SIGKILL);
    } else {
        kill(team->pids[s->victim], SIGSTOP);
        sleep_ms(s->strike == STRIKE_NAP ? 50 : 3 * PEER_TIMEOUT_MS * slow_factor());
        kill(team->pids[s->victim], SIGCONT);
    }
}

static void check_all(const struct storm *s)
{
    uint32_t counts[5] = {0};
    for (int from = 0; from < MEMBERS; from++)
        for (uint32_t i = 0; i < s->count; i++) {
            struct parcel p = parcel_of(s, from, i);
            uint8_t outcome = s->outcome[(size_t)from * s->count + i];
            unsigned came = atomic_load(&s->delivered[(size_t)from * s->count + i]);
            bool whole = s->strike == STRIKE_NONE || s->strike == STRIKE_NAP;
            bool told =
                s->strike != STRIKE_KILL || p.to != s->victim; /* a killed one may not have noted it */
            counts[outcome]++;
            check(came <= 1, "message %u of rank %d came %u times", i, from, came);
            check(!whole || came == 1, "message %u of rank %d (%zu bytes to rank %d) did not come", i, from,
                  p.len, p.to);
            check(outcome != NOT_DELIVERED || came == 0,
                  "seed %llu: message %u of rank %d came, but its sender says it was not delivered",
                  (unsigned long long)s->seed, i, from);
            check(outcome != RECEIVED || came == 1 || !told,
                  "seed %llu: message %u of rank %d did not come, but its sender says so",
                  (unsigned long long)s->seed, i, from);
        }
    print_message("seed %llu: %u sent, %u of them received for sure, %u failed, %u unknown\n",
                  (unsigned long long)s->seed, counts[SENT] + counts[RECEIVED], counts[RECEIVED],
                  counts[NOT_DELIVERED], counts[UNKNOWN]);
}

static void *shared(size_t len)
{
    void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void play(const char *transport, struct storm s)
{
    struct team team;
    size_t len = (size_t)MEMBERS * s.count;
    unsigned seconds = soaking() ? 3600 : 120;
    s.mixed = strcmp(transport, "auto") == 0;
    s.port = s.mixed ? free_port() : 0;
    s.outcome = shared(len);
    s.delivered = shared(len);
    watchdog(2 * seconds * (unsigned)slow_factor(), transport);
    uint64_t begin = now_ns();
    team_start(&team, MEMBERS, transport, member, &s);
    if (s.strike != STRIKE_NONE && team_ready(&team, 60))
        strike(&team, &s);
    team_join(&team, seconds);
    check_all(&s);
    print_message("%s: %u messages in %.1f s\n", transport, MEMBERS * s.count,
                  (double)(now_ns() - begin) / 1e9);
    team_free(&team);
    munmap(s.outcome, len);
    munmap((void *)s.delivered, len);
    watchdog(0, NULL);
    checks_end();
}

/* A tenth in all of what is played in `make soak`. */
static uint32_t share(uint32_t tenth)
{
    return (soaking() ? 10 : 1) * tenth / (getenv("HEARTH_TEST_BRIEF") ? 20u : 1u);
}

TEST(test_shared_memory_and_tcp_in_one_group)
{
    if (geteuid() != 0) {
        print_message("skipped: only root can be two users\n");
        skip();
    }
    play("auto", (struct storm){.seed = 1, .count = share(8000)});
}

TEST(test_shared_memory)
{
    play("shm", (struct storm){.seed = 2, .count = share(7000)});
}

TEST(test_tcp_with_tls)
{
    play("tcp", (struct storm){.seed = 3, .count = share(5000)});
}

static void play_faults(enum strike how, unsigned long usual)
{
    const char *const transports[] = {"shm", "tcp", geteuid() == 0 ? "auto" : "shm"};
    for (uint64_t seed = first_seed(); seed < first_seed() + repeat_count(usual); seed++)
        play(transports[seed % 3],
             (struct storm){
                 .seed = seed, .count = share(1000), .strike = how, .victim = (int)(seed % MEMBERS)});
}

TEST(test_a_killed_member)
{
    play_faults(STRIKE_KILL, 6);
}

TEST(test_a_frozen_member)
{
    play_faults(STRIKE_FREEZE, soaking() ? 6 : 1);
}

TEST(test_a_short_sleep_harms_nothing)
{
    play_faults(STRIKE_NAP, 3);
}
