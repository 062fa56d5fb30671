/* SPDX-License-Identifier: Apache-2.0 */
/* Who this machine is, and which of its addresses to use. */
#include "os/host.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/hash.h"
#include "os/resolve.h"
#include "os/thread.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

#define CAN_AES   (1ul << 3) /* HWCAP_AES and HWCAP_PMULL of the kernel's asm/hwcap.h */
#define CAN_PMULL (1ul << 4)
#endif

#define NAME_TEXT_MAX 256
#define HOME_TEXT_MAX 4096
#define LIST_TEXT_MAX 200 /* of the interfaces that an error lists */

#define BOOT_ID    "/proc/sys/kernel/random/boot_id"
#define MACHINE_ID "/etc/machine-id"

/* ---- who ---- */

bool file_read(const char *path, char *text, size_t size)
{
    size_t len = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    do {
        got = read(fd, text + len, size - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    } while (len < size - 1 && (got > 0 || (got < 0 && errno == EINTR)));
    close(fd);
    text[len] = '\0';
    return len > 0;
}

bool file_write(int fd, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    while (len > 0) {
        ssize_t put = write(fd, at, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        len -= (size_t)put;
    }
    return true;
}

/* Other network namespaces are other machines. */
static uint64_t hash_with_network(uint64_t hash)
{
    struct stat net;
    return stat("/proc/self/ns/net", &net) == 0 ? hash_mix(hash, (uint64_t)net.st_ino) : hash;
}

int host_id(uint64_t *id)
{
    char text[NAME_TEXT_MAX];
    uint64_t hash = 0;

    if (file_read(BOOT_ID, text, sizeof text)) {
        hash = hash64(hash, text, strlen(text));
    } else {
        if (gethostname(text, sizeof text) != 0)
            return HEARTH_SYSTEM;
        text[sizeof text - 1] = '\0';
        hash = hash64(hash, text, strlen(text));
        if (file_read(MACHINE_ID, text, sizeof text))
            hash = hash64(hash, text, strlen(text));
    }
    *id = hash_mix(hash_with_network(hash_mix(hash, host_user())), sock_names_id());
    return HEARTH_OK;
}

void host_name(char *name, size_t size)
{
    char text[NAME_TEXT_MAX] = "";

    if (gethostname(text, sizeof text) != 0 || text[0] == '\0')
        snprintf(text, sizeof text, "unknown");
    text[sizeof text - 1] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            *c = '?';
    snprintf(name, size, "%s", text);
}

uint32_t host_user(void)
{
    return (uint32_t)geteuid();
}

int host_parent(void)
{
    return (int)getppid();
}

bool host_home(char *path, size_t size)
{
    char text[HOME_TEXT_MAX];
    struct passwd entry, *found = NULL;

    if (getpwuid_r(geteuid(), &entry, text, sizeof text, &found) != 0 || !found || found->pw_dir[0] != '/')
        return false;
    return (size_t)snprintf(path, size, "%s", found->pw_dir) < size;
}

/* ---- what it has ---- */

static uint64_t machine_hash(const struct utsname *name)
{
    char text[NAME_TEXT_MAX];

    if (!file_read(MACHINE_ID, text, sizeof text) && !file_read(BOOT_ID, text, sizeof text))
        snprintf(text, sizeof text, "%s", name->nodename);
    return hash_with_network(hash64(0, text, strlen(text)));
}

bool processor_has_aes(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & (CAN_AES | CAN_PMULL)) == (CAN_AES | CAN_PMULL);
#else
    return false;
#endif
}

static uint16_t cpu_bits(void)
{
    unsigned bits = processor_has_aes() ? HOST_AES : 0;
#if defined(__x86_64__)
    bits |= __builtin_cpu_supports("avx2") ? HOST_AVX2 : 0;
    bits |= __builtin_cpu_supports("avx512f") ? HOST_AVX512 : 0;
#elif defined(__aarch64__)
    bits |= HOST_NEON;
#endif
    return (uint16_t)bits;
}

void host_facts(struct host_facts *facts)
{
    struct utsname name = {0};
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int cores = cpu_count();

    (void)uname(&name); /* an empty name is what is left */
    memset(facts, 0, sizeof *facts);
    facts->machine = machine_hash(&name);
    facts->memory_mib = pages > 0 && page > 0 ? (uint32_t)(((uint64_t)pages * (uint64_t)page) >> 20) : 0;
    facts->cores = (uint16_t)(cores < UINT16_MAX ? cores : UINT16_MAX);
    facts->cpu = cpu_bits();
    name.release[14] = '\0'; /* distributions write long ones */
    snprintf(facts->platform, sizeof facts->platform, "%.8s %.12s %.8s", name.sysname, name.release,
             name.machine);
    for (char *c = facts->platform; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

/* ---- what to tell others ---- */

/* Kinds as far as others can reach them: the next row is used only if all before give nothing. */
static const enum interface_kind tiers[][2] = {
    {INTERFACE_WIRE, INTERFACE_OTHER},
    {INTERFACE_TUNNEL, INTERFACE_TUNNEL},
    {INTERFACE_VIRTUAL, INTERFACE_VIRTUAL},
    {INTERFACE_LOOPBACK, INTERFACE_LOOPBACK},
};
#define TIERS ((int)(sizeof(tiers) / sizeof(tiers[0])))

/* An IPv6 link-local address means nothing to others: which link would be theirs to say. */
static bool tellable(const struct interface *i, bool ipv4_only)
{
    return sock_addr_family(&i->addr) == SOCK_IPV4 || (!ipv4_only && !i->link_local);
}

int host_best(const struct interface *list, int count, bool ipv4_only, struct sock_addr *addrs, int max)
{
    int found = 0;

    /* First those that are plugged in. */
    for (int round = 0; round < 2 * TIERS && found == 0; round++) {
        const enum interface_kind *kinds = tiers[round % TIERS];
        for (int i = 0; i < count && found < max; i++)
            if ((list[i].kind == kinds[0] || list[i].kind == kinds[1]) && list[i].up == (round < TIERS) &&
                tellable(&list[i], ipv4_only))
                addrs[found++] = list[i].addr;
    }
    return found;
}

/* "eth0 192.168.1.2, lo 127.0.0.1" */
static void list_text(const struct interface *list, int count, char *text, size_t size)
{
    char addr[SOCK_TEXT_MAX];
    size_t len = 0;

    text[0] = '\0';
    for (int i = 0; i < count && len < size; i++) {
        sock_addr_text(&list[i].addr, addr, sizeof addr);
        char *port = strrchr(addr, ':');
        if (port)
            *port = '\0';
        len += (size_t)snprintf(text + len, size - len, "%s%s %s", i > 0 ? ", " : "", list[i].name, addr);
    }
}

static int bind_error(const char *bind, const struct interface *list, int count, struct error *error)
{
    char text[LIST_TEXT_MAX];

    list_text(list, count, text, sizeof text);
    return error_set(error, HEARTH_INVALID, RANK_NONE,
                     "cannot listen on \"%.64s\": no interface or address of this machine; there are: %s",
                     bind, text);
}

/* Every interface: IPv6's "every" hears IPv4 too, where there is IPv6 at all. */
static void listen_everywhere(uint16_t port, struct sock_addr *listen)
{
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    int status = sock_addr_parse(fd >= 0 ? "::" : "0.0.0.0", port, listen);
    (void)status;
    sock_close(fd);
}

static int listen_where(const char *bind, uint16_t port, uint64_t deadline_ns, const struct interface *list,
                        int count, struct sock_addr *listen)
{
    struct sock_addr found[RESOLVE_MAX];
    int found_count = 0;

    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].name, bind) == 0) {
            *listen = list[i].addr;
            sock_addr_set_port(listen, port);
            return HEARTH_OK;
        }
    }
    if (resolve(bind, port, deadline_ns, found, &found_count, NULL) != HEARTH_OK)
        return HEARTH_INVALID;
    for (int i = 0; i < found_count; i++) {
        if (sock_addr_family(&found[i]) != SOCK_UNIX && host_owns(&found[i])) {
            *listen = found[i];
            return HEARTH_OK;
        }
    }
    return HEARTH_INVALID;
}

/* Others dial what we listen on, or, if that is every interface, the best of them. */
static int tell(const struct interface *list, int list_count, const struct sock_addr *listen,
                struct sock_addr *addrs, int max)
{
    if (sock_addr_wildcard(listen))
        return host_best(list, list_count, sock_addr_family(listen) == SOCK_IPV4, addrs, max);
    addrs[0] = *listen;
    sock_addr_set_port(&addrs[0], 0);
    return 1;
}

static int tell_as_told(const char *advertise, uint64_t deadline_ns, struct sock_addr *addrs, int max,
                        int *count, struct error *error)
{
    struct sock_addr found[RESOLVE_MAX];
    int found_count = 0;

    int status = resolve(advertise, 0, deadline_ns, found, &found_count, error);
    if (status != HEARTH_OK)
        return status;
    if (sock_addr_family(&found[0]) == SOCK_UNIX || sock_addr_wildcard(&found[0]))
        return error_set(error, HEARTH_INVALID, RANK_NONE, "others cannot dial \"%.64s\"", advertise);
    *count = found_count < max ? found_count : max;
    memcpy(addrs, found, (size_t)*count * sizeof addrs[0]);
    return HEARTH_OK;
}

int host_choose(const struct host_wanted *wanted, struct sock_addr *listen, struct sock_addr *addrs, int max,
                int *count, struct error *error)
{
    struct interface list[INTERFACES_MAX];
    struct sock_addr where;
    int list_count = 0;

    if (host_interfaces(list, &list_count) != HEARTH_OK)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "cannot list the network interfaces: %s",
                         strerror(errno));
    if (!wanted->bind)
        listen_everywhere(wanted->port, &where);
    else if (listen_where(wanted->bind, wanted->port, wanted->deadline_ns, list, list_count, &where) !=
             HEARTH_OK)
        return bind_error(wanted->bind, list, list_count, error);
    int found = 0;
    if (wanted->advertise) {
        int status = tell_as_told(wanted->advertise, wanted->deadline_ns, addrs, max, &found, error);
        if (status != HEARTH_OK)
            return status;
    } else {
        found = tell(list, list_count, &where, addrs, max);
    }
    if (found == 0)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE,
                         "this machine has no network address, not even loopback");
    *listen = where;
    *count = found;
    return HEARTH_OK;
}
