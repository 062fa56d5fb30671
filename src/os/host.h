/* SPDX-License-Identifier: Apache-2.0 */
/* The machine we run on: its identity, its hardware, its networks. */
#pragma once

#include "os/sock.h"

/* Equal for processes that can share memory and unix sockets: the same boot of the same machine, the same
 * user, the same network namespace, the same folder for sockets. */
int MUST_CHECK host_id(uint64_t *id);
void host_name(char *name, size_t size); /* for people; always terminated, printable */
uint32_t host_user(void);                /* effective user id */
int host_parent(void);                   /* process id of the parent */
bool host_home(char *path, size_t size); /* of the user, by the system's list; false: it has none */

/* A small file of the system: at most size - 1 bytes, terminated. False: no such file, or it is empty. */
bool file_read(const char *path, char *text, size_t size);
bool file_write(int fd, const void *bytes, size_t len); /* all of them; false: see errno */

#define HOST_PLATFORM_MAX 32

/* Bits of struct host_facts.cpu; they travel to others. */
#define HOST_AVX2   1u
#define HOST_AVX512 2u
#define HOST_NEON   4u
#define HOST_AES    8u

struct host_facts {
    uint64_t machine; /* the same for all users and boots; other network namespaces are other machines */
    uint32_t memory_mib;
    uint16_t cores;
    uint16_t cpu;
    char platform[HOST_PLATFORM_MAX]; /* "Linux 6.1.0-18 x86_64", printable, cut */
};
/* What the system does not tell is 0. */
void host_facts(struct host_facts *facts);
bool processor_has_aes(void); /* AES-GCM in hardware: both the cipher and its authentication */

enum interface_kind {
    INTERFACE_WIRE,    /* a wired or wireless network, and virtual machines' cards: what one wants */
    INTERFACE_OTHER,   /* bridges and devices of unknown kind */
    INTERFACE_TUNNEL,  /* VPN: tun, wg, ppp, tailscale, zerotier */
    INTERFACE_VIRTUAL, /* docker0, veth of containers, virbr, cni: other machines cannot reach it */
    INTERFACE_LOOPBACK
};

#define INTERFACE_NAME_MAX 16
struct interface {
    char name[INTERFACE_NAME_MAX];
    enum interface_kind kind;
    bool up; /* something is plugged in */
    bool link_local;
    struct sock_addr addr; /* port 0 */
};

#define INTERFACES_MAX 64
/* All addresses of all interfaces that are switched on, best first: by kind, then plugged in before not,
 * IPv4 before IPv6, routable before link-local, default route's interface first, then as the system lists
 * them. */
int MUST_CHECK host_interfaces(struct interface list[INTERFACES_MAX], int *count);
/* What a name alone tells; INTERFACE_OTHER: nothing. */
enum interface_kind interface_kind_of_name(const char *name);
bool interface_wireless(const char *name); /* false also where the system does not tell */
/* Those of a sorted list that others can be told, port 0: how many, at most max. `ipv4_only`: we do not
 * listen on IPv6. */
int host_best(const struct interface *list, int count, bool ipv4_only, struct sock_addr *addrs, int max);
/* Whether one of our interfaces has this address (port ignored); loopback and wildcard: yes. */
bool host_owns(const struct sock_addr *addr);

/* Where the config wants a node to listen, and what to tell others. */
struct host_wanted {
    const char *bind; /* interface name or address; NULL: every interface */
    /* Address or host, with or without a port. NULL: our own addresses, best first; loopback only if `bind`
     * says so or there is nothing else, no docker0, a VPN only if it is all there is. */
    const char *advertise;
    uint16_t port;
    uint64_t deadline_ns; /* of name resolution */
};
/* `listen` has the port; addrs, at most `max`, have port 0 unless advertise gave one. The error lists the
 * interfaces there are. */
int MUST_CHECK host_choose(const struct host_wanted *wanted, struct sock_addr *listen,
                           struct sock_addr *addrs, int max, int *count, struct error *error);
