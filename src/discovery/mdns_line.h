/* SPDX-License-Identifier: Apache-2.0 */
/* Lines between the library and a helper that speaks mDNS (docs/discovery.md). Text, one fact a line, so that
 * any program that can find services (another system's Bonjour) can stand behind them. Pure: bytes in, facts
 * out.
 *
 *   to the helper     publish SPACE NODE INSTANCE PORT FLAGS NAME      (again: it has changed)
 *                     address IFACE ADDR ...                           which addresses to publish, replaces
 * those before quit from the helper   ready VERSION found KEY IFACE ADDR PORT VERSION SPACE NODE INSTANCE
 * FLAGS NAME lost KEY warn TEXT KEY is what the helper knows the record by: no spaces, at most 127
 * characters; ADDR is numeric, with %iface where it is link-local; SPACE, NODE, INSTANCE and FLAGS are
 * hexadecimal; NAME is the rest of the line. */
#ifndef DISCOVERY_MDNS_LINE_H
#define DISCOVERY_MDNS_LINE_H

#include "core/error.h"
#include "os/sock.h"
#include "security/node_key.h"
#include "security/secret.h"

#define MDNS_LINE_MAX  512 /* with its newline */
#define MDNS_KEY_MAX   128 /* with the final 0 */
#define MDNS_NAME_MAX  64
#define MDNS_VERSION   1
#define MDNS_SERVICE   "_hearth._tcp"
#define DISCOVERY_PORT 52415 /* rendezvous and seeds */
#define HEARTH_PORT    52416 /* everything else */

/* A node that somebody says is there. Never trusted, only dialled. */
struct sighting {
    char key[MDNS_KEY_MAX];
    char interface[32];
    struct sock_addr addr; /* with the port */
    uint32_t version;
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
/* One line without its newline. HEARTH_PROTOCOL with what is wrong. */
int MUST_CHECK mdns_line_parse(struct mdns_line *line, const char *text, size_t len, const char **what);

/* What we say of ourselves. */
struct announcement {
    uint8_t space[NAMESPACE_LEN];
    struct identity id;
    uint16_t port;
    uint32_t flags;
    char name[MDNS_NAME_MAX];
};
/* With the newline; the length, 0 if it does not fit. */
size_t mdns_line_publish(const struct announcement *announcement, char *target, size_t size);
size_t mdns_line_found(const struct sighting *sighting, char *target, size_t size); /* for helpers */

#endif
