/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: the firewall, and what the system grants: buffers, descriptors, memory, processor. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"
#include "cli/shared/json.h"
#include "cli/shared/text.h"
#include "kernel/kernel.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/sock.h"
#include "os/spawn.h"

#define RULES_MAX       (1u << 20) /* bytes of a ruleset that are looked at */
#define RULES_WAIT_NS   (2 * NS_PER_S)
#define UDP_BUFFER_MIN  (4 << 20) /* what quic asks for */
#define DESCRIPTORS_MIN 1024
#define MEMLOCK_MIN     (64 << 10)
#define SHM_MIN         (64u << 20)
#define PORTS_TCP       "52415-52431"
#define PORTS_UDP       "5353, 52415-52431"

/* ---- firewall: only a look, nothing is changed ---- */

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

/* The rules as a tool prints them, behind its name and a newline; "": none could be seen in time. */
static void list_rules(char text[static RULES_MAX])
{
    static const char script[] =
        "PATH=$PATH:/usr/sbin\n"
        "rules=$(nft list ruleset </dev/null) && printf 'nft\\n%s' \"$rules\" && exit\n"
        "rules=$(iptables -S INPUT </dev/null) && printf 'iptables\\n%s' \"$rules\"\n";
    uint64_t deadline_ns = clock_real() + RULES_WAIT_NS;
    struct child shell;
    struct error error;
    size_t len = 0;
    ssize_t got = 1;
    text[0] = 0;
    if (child_start(&shell, "/bin/sh", &error))
        return;
    if (write(shell.fd, script, sizeof script - 1) == (ssize_t)sizeof script - 1)
        sock_finish(shell.fd);
    while (got > 0 && len < RULES_MAX - 1) {
        struct sock_wait item = {.fd = shell.fd, .want_recv = true};
        got = sock_wait(&item, 1, deadline_ns) > 0 ? read(shell.fd, text + len, RULES_MAX - 1 - len) : 0;
        len += got > 0 ? (size_t)got : 0;
    }
    text[len] = 0;
    kill(-shell.pid, SIGKILL); /* a tool that hangs, too */
    child_end(&shell);
}

static void note_rules(struct doctor *d, const char *tool, const struct firewall_view *view, const char *fix)
{
    if (!view->closed)
        doctor_note(d, PASS, "firewall", "%s: nothing is kept out by default", tool);
    else if (view->opened)
        doctor_note(d, PASS, "firewall", "%s: what no rule lets in stays out, and Hearth has a rule", tool);
    else
        doctor_note(d, WARN, "firewall",
                    "%s: what no rule lets in stays out, and no rule names Hearth's port" FIX "%s", tool,
                    fix);
}

static bool check_ufw(struct doctor *d)
{
    char line[256];
    bool enabled = false;
    FILE *file = fopen("/etc/ufw/ufw.conf", "re");
    while (file && fgets(line, sizeof line, file))
        enabled = enabled || strncmp(line, "ENABLED=yes", 11) == 0;
    if (file)
        fclose(file);
    if (!enabled || geteuid() == 0) /* the rules themselves are for root only */
        return false;
    doctor_note(d, WARN, "firewall",
                "ufw is on; whether it lets Hearth in, only root can see" FIX
                "sudo ufw status; if there is no rule: sudo ufw allow 52415:52431/tcp; sudo ufw allow "
                "52415:52431/udp; sudo ufw allow 5353/udp");
    return true;
}

static void check_rules(struct doctor *d, char *text)
{
    struct firewall_view view;
    char fix[FINDING_TEXT_MAX];
    list_rules(text);
    if (begins(text, "nft\n")) {
        view = firewall_read_nft(text);
        snprintf(fix, sizeof fix,
                 "nft insert rule %s tcp dport " PORTS_TCP
                 " accept; nft insert rule %s udp dport '{ " PORTS_UDP " }' accept",
                 view.place, view.place);
        note_rules(d, "nft", &view, fix);
    } else if (begins(text, "iptables\n")) {
        view = firewall_read_iptables(text);
        note_rules(d, "iptables", &view,
                   "iptables -I INPUT -p tcp --dport 52415:52431 -j ACCEPT; iptables -I INPUT -p udp -m "
                   "multiport --dports 5353,52415:52431 -j ACCEPT");
    } else {
        char own[64] = "";
        int64_t port = json_count_of(json_object_get(d->status, "self"), "port");
        if (port > 0)
            snprintf(own, sizeof own, "; the node that runs here: %lld, both", (long long)port);
        doctor_note(d, PASS, "firewall",
                    "no rules can be seen%s; Hearth needs tcp " PORTS_TCP " and udp " PORTS_UDP "%s",
                    geteuid() == 0 ? "" : " by this user", own);
    }
}

static void check_firewall(struct doctor *d)
{
    char *text = check_ufw(d) ? NULL : malloc(RULES_MAX);
    if (text)
        check_rules(d, text);
    free(text);
}

/* ---- limits ---- */

double number_in(const char *path)
{
    long long value = -1;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%lld", &value) != 1)
        value = -1;
    if (file)
        fclose(file);
    return (double)value;
}

static void check_buffers(struct doctor *d)
{
    double most = number_in("/proc/sys/net/core/rmem_max");
    if (most < 0)
        doctor_note(d, PASS, "udp-buffers", "this system does not tell its limit");
    else if (most < UDP_BUFFER_MIN)
        doctor_note(d, WARN, "udp-buffers",
                    "at most %s: fast quic links lose packets" FIX
                    "sysctl -w net.core.rmem_max=8388608 net.core.wmem_max=8388608, and the same in "
                    "/etc/sysctl.d/hearth.conf",
                    text_bytes(most).s);
    else
        doctor_note(d, PASS, "udp-buffers", "up to %s", text_bytes(most).s);
}

static void check_descriptors(struct doctor *d)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur < DESCRIPTORS_MIN)
        doctor_note(d, WARN, "descriptors",
                    "only %llu; each peer needs up to ten" FIX
                    "ulimit -n 4096, or LimitNOFILE=4096 of a service",
                    (unsigned long long)limit.rlim_cur);
    else
        doctor_note(d, PASS, "descriptors", "%llu", (unsigned long long)limit.rlim_cur);
}

static void check_memlock(struct doctor *d)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    if (limit.rlim_cur < MEMLOCK_MIN)
        doctor_note(d, WARN, "memlock",
                    "only %s may be locked: keys may be written to the swap" FIX
                    "ulimit -l 1024, or LimitMEMLOCK=1M of a service",
                    text_bytes((double)limit.rlim_cur).s);
    else
        doctor_note(d, PASS, "memlock", "%s may be locked",
                    limit.rlim_cur == RLIM_INFINITY ? "everything" : text_bytes((double)limit.rlim_cur).s);
}

static void check_shm(struct doctor *d)
{
    struct statvfs seen;
    bool there = statvfs("/dev/shm", &seen) == 0;
    double left = there ? (double)seen.f_bavail * (double)seen.f_frsize : 0;
    if (!there)
        doctor_note(d, PASS, "shm", "there is no /dev/shm; Hearth's own shared memory needs none");
    else if (left < SHM_MIN)
        doctor_note(d, WARN, "shm",
                    "%s left in /dev/shm: data loaders of training programs need more" FIX
                    "mount -o remount,size=50%% /dev/shm; of a container: --shm-size=1g",
                    text_bytes(left).s);
    else
        doctor_note(d, PASS, "shm", "%s left in /dev/shm", text_bytes(left).s);
}

static void check_processor(struct doctor *d)
{
    char machine[256];
    machine_line(machine, sizeof machine);
    doctor_note(d, PASS, "processor", "%s; kernels %s, %s", machine, kernels_best()->name,
                processor_has_aes() ? "AES in hardware" : "no AES in hardware: ChaCha20 encrypts");
}

void doctor_check_limits(struct doctor *doctor)
{
    check_firewall(doctor);
    check_buffers(doctor);
    check_descriptors(doctor);
    check_memlock(doctor);
    check_shm(doctor);
    check_processor(doctor);
}
