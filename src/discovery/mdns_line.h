/* SPDX-License-Identifier: Apache-2.0 */
/* Lines between the library and a helper that speaks mDNS; docs/discovery.md is the law. Text, one fact a
 * line, so that any program that can find services (another system's Bonjour) can stand behind them. Pure:
 * bytes in, facts out.
 *
 *   to the helper     publish SPACE NODE INSTANCE PORT FLAGS NAME    what we are; again: it has changed
 *                     publish                                        nothing any more
 *                     address IFACE ADDR ...    use this interface, publish these there; replaces what was
 *                                               said of this one; without any ADDR: leave it alone
 *                     quit                      as does the end of its input
 *   from the helper   ready VERSION
 *                     found KEY IFACE ADDR PORT VERSION SPACE NODE INSTANCE FLAGS NAME
 *                     lost KEY
 *                     warn TEXT
 *
 * KEY is what the helper knows the record by, one for each address: no spaces, at most 127 characters. ADDR
 * is numeric, with %iface where it is link-local. SPACE, NODE, INSTANCE and FLAGS are hexadecimal. NAME,
 * VERSION of ready and TEXT are the rest of the line; all of a line is printable ASCII. */
#pragma once

#include "core/error.h"
#include "os/sock.h"
#include "security/node_key.h"
#include "security/secret.h"

#define MDNS_LINE_MAX      512 /* with its newline */
#define MDNS_KEY_MAX       128 /* with the final 0 */
#define MDNS_NAME_MAX      64
#define MDNS_INTERFACE_MAX 32
#define MDNS_VERSION       1
#define MDNS_SERVICE       "_hearth._tcp"
#define MDNS_ADDRESSES     8     /* of one node on one interface */
#define HEARTH_PORT        52416 /* where nodes listen */

/* A node as mDNS announces it: another one, which is never trusted, only dialled, or ourselves. */
struct sighting {
    char key[MDNS_KEY_MAX]; /* this and the next three: of another one */
    char interface[MDNS_INTERFACE_MAX];
    struct sock_addr addr; /* with the port */
    uint32_t version;
    uint16_t port;
    uint8_t space[NAMESPACE_LEN];
    struct identity id;
    uint32_t flags;
    char name[MDNS_NAME_MAX];
};

enum mdns_line_kind { MDNS_READY, MDNS_FOUND, MDNS_LOST, MDNS_WARN };
struct mdns_line {
    enum mdns_line_kind kind;
    struct sighting sighting; /* FOUND: all; LOST: the key */
    char text[256];           /* WARN; READY: the helper's version */
};
/* What was read at either end, to be cut into lines. */
struct mdns_input {
    char bytes[2 * MDNS_LINE_MAX];
    size_t len, taken;
    bool skipping; /* the rest of a line that is too long */
};
/* The next line, without its newline; false: none, and `bytes` has room behind `len`. Of one that is too long
 * so much that mdns_line_parse refuses it. */
bool mdns_input_next(struct mdns_input *in, const char **line, size_t *len);

/* One line without its newline. HEARTH_PROTOCOL with what is wrong. */
int MUST_CHECK mdns_line_parse(struct mdns_line *line, const char *text, size_t len, const char **what);

/* All of these: with the newline; the length, 0 if it does not fit. Bytes of names that are not printable
 * become '?'. NULL: nothing any more. */
size_t mdns_line_publish(const struct sighting *self, char *target, size_t size);
size_t mdns_line_address(const char *interface, const struct sock_addr *addrs, int count, char *target,
                         size_t size);

/* ---- for helpers ---- */

size_t mdns_line_found(const struct sighting *sighting, char *target, size_t size);

enum mdns_command_kind { MDNS_PUBLISH, MDNS_ADDRESS, MDNS_QUIT };
struct mdns_command {
    enum mdns_command_kind kind;
    struct sighting self;                   /* PUBLISH; port 0: nothing any more */
    char interface[MDNS_INTERFACE_MAX];     /* ADDRESS */
    struct sock_addr addrs[MDNS_ADDRESSES]; /* likewise; port 0 */
    int count;
};
int MUST_CHECK mdns_command_parse(struct mdns_command *command, const char *text, size_t len,
                                  const char **what);

/* Without its port; always terminated. */
void mdns_addr_text(const struct sock_addr *addr, char *text, size_t size);
/* Without a port, none that cannot be dialled (wildcard, multicast, unix). */
bool mdns_addr_parse(const char *text, uint16_t port, struct sock_addr *out);

/* Strings of the TXT record: "v=1", "ns=...", "id=...", "in=...", "fl=...", "name=...". */
#define MDNS_TXT_ITEMS    6
#define MDNS_TXT_ITEM_MAX 80
void mdns_txt_write(const struct sighting *self, char items[static MDNS_TXT_ITEMS][MDNS_TXT_ITEM_MAX]);
/* One string; begin with *seen = 0. Unknown ones are passed over. HEARTH_PROTOCOL: what is wrong. */
int MUST_CHECK mdns_txt_read(struct sighting *sighting, unsigned *seen, const void *item, size_t len,
                             const char **what);
bool mdns_txt_whole(unsigned seen); /* all that must be there was */
