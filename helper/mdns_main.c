/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-mdns: speaks mDNS for the library, which starts it; docs/discovery.md has its lines. It needs no
 * privileges, keeps no files, and ends with its input. It is a process of its own since what it reads comes
 * from any host on the network; before it reads any of that it gives up all rights but those to datagrams. */
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <avahi-common/simple-watch.h>
#include <avahi-core/core.h>
#include <avahi-core/log.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "helper/mdns_net.h"
#include "os/sandbox.h"
#include "os/spawn.h"

#define CACHE_ENTRIES 16384 /* records of one interface that avahi remembers */
#define TURN_MS       1000  /* at least so often we look at interfaces and clocks */
#define JUMP_S        3.0   /* wall clock against the steady one */
#define GOODBYE_S     2     /* then the end comes by alarm */

struct context {
    struct mdns mdns;
    struct mdns_input input;
    bool ended;
};

static volatile sig_atomic_t told_to_end;

static void on_signal(int number)
{
    (void)number;
    told_to_end = 1;
    alarm(GOODBYE_S);
}

/* ---- commands ---- */

static void obey(struct context *c, const char *text, size_t len)
{
    struct mdns *m = &c->mdns;
    struct mdns_command command;
    const char *what = "";

    if (mdns_command_parse(&command, text, len, &what) != HEARTH_OK) {
        out_warn(&m->out, what, "a command is wrong: %s", what);
        return;
    }
    switch (command.kind) {
    case MDNS_PUBLISH:
        m->self = command.self;
        publish_all(m);
        return;
    case MDNS_ADDRESS:
        net_set(m, command.interface, command.addrs, command.count);
        return;
    case MDNS_QUIT:
        c->ended = true;
    }
}

static void readable(AvahiWatch *watch, int fd, AvahiWatchEvent event, void *arg)
{
    struct context *c = arg;
    const char *line;
    size_t len;

    (void)watch, (void)event;
    ssize_t n = read(fd, c->input.bytes + c->input.len, sizeof c->input.bytes - c->input.len);
    if (n > 0) {
        c->input.len += (size_t)n;
        while (!c->ended && mdns_input_next(&c->input, &line, &len))
            obey(c, line, len);
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
        c->ended = true;
    }
}

/* ---- clocks ---- */

static double clock_s(clockid_t which)
{
    struct timespec t;

    clock_gettime(which, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* avahi's timers follow the wall clock: set back, they would stand still; and after a machine has slept what
 * we know is old. Then the library starts us anew. */
static bool clock_jumped(double *difference)
{
    double now = clock_s(CLOCK_REALTIME) - clock_s(CLOCK_MONOTONIC);
    double jump = now - *difference;

    *difference = now;
    return jump > JUMP_S || jump < -JUMP_S;
}

/* ---- the whole ---- */

static void avahi_says(AvahiLogLevel level, const char *text)
{
    (void)level, (void)text; /* what matters comes back as an error */
}

static void server_changed(AvahiServer *server, AvahiServerState state, void *arg)
{
    (void)server, (void)state, (void)arg;
}

static AvahiServer *server_new(const AvahiPoll *poll, int *error)
{
    char host[64];
    AvahiServerConfig config;

    avahi_server_config_init(&config);
    snprintf(host, sizeof host, "hearth-mdns-%d", (int)getpid()); /* nothing is published under it */
    config.host_name = avahi_strdup(host);
    config.use_ipv4 = config.use_ipv6 = 1;
    config.publish_addresses = config.publish_hinfo = config.publish_workstation = config.publish_domain = 0;
    config.allow_point_to_point = 1; /* a VPN, where it is all there is */
    config.enable_wide_area = 0;
    config.n_cache_entries_max = CACHE_ENTRIES;
    AvahiServer *server = avahi_server_new(poll, &config, server_changed, NULL, error);
    avahi_server_config_free(&config);
    return server;
}

static void say_ready(struct mdns *m)
{
    char line[128];

    int len = snprintf(line, sizeof line, "ready hearth-mdns %d.%d.%d\n", HEARTH_VERSION_MAJOR,
                       HEARTH_VERSION_MINOR, HEARTH_VERSION_PATCH);
    out_line(&m->out, line, (size_t)len);
}

static int run(struct context *c, AvahiSimplePoll *loop)
{
    double difference = clock_s(CLOCK_REALTIME) - clock_s(CLOCK_MONOTONIC);

    while (!c->ended && !c->mdns.out.broken && !told_to_end) {
        if (avahi_simple_poll_iterate(loop, TURN_MS) != 0 && errno != EINTR)
            return EXIT_FAILURE;
        if (clock_jumped(&difference)) {
            out_warn(&c->mdns.out, "clock", "the clock was set, or the machine slept; beginning anew");
            break;
        }
        net_check(&c->mdns);
    }
    return EXIT_SUCCESS;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

int main(void)
{
    static struct context context;
    struct mdns *m = &context.mdns;
    int error = 0, status = EXIT_FAILURE;
    struct error why;

    catch_signals();
    (void)leash_tie_gently((int)getppid()); /* if that has ended, so has our input */
    avahi_set_log_function(avahi_says);
    AvahiSimplePoll *loop = avahi_simple_poll_new();
    m->poll = loop ? avahi_simple_poll_get(loop) : NULL;
    if (!m->poll || !out_init(&m->out, m->poll, STDOUT_FILENO))
        return EXIT_FAILURE;
    if (sandbox_enter(&why) != HEARTH_OK) /* it is a second wall: without it nodes are found, too */
        out_warn(&m->out, "sandbox", "the mdns helper is not fully sandboxed: %s", why.text);
    m->server = server_new(m->poll, &error);
    if (!m->server) {
        out_warn(&m->out, "server", "cannot speak mDNS: %s", avahi_strerror(error));
    } else if (m->poll->watch_new(m->poll, STDIN_FILENO, AVAHI_WATCH_IN, readable, &context)) {
        say_ready(m);
        status = run(&context, loop);
        alarm(GOODBYE_S);
        net_close_all(m);
        avahi_server_free(m->server);
    }
    out_fini(&m->out);
    avahi_simple_poll_free(loop);
    return status;
}
