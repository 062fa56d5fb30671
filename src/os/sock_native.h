/* SPDX-License-Identifier: Apache-2.0 */
/* Between files of os/: struct sock_addr and the system's addresses, and what only unix sockets need. */
#pragma once

#include <sys/socket.h>

#include "os/sock.h"

/* False: of a family we do not know. IPv4 in IPv6 clothes (::ffff:1.2.3.4) becomes IPv4. */
bool sock_addr_take(struct sock_addr *addr, const struct sockaddr *native, socklen_t len);
/* `len` of it are meant. */
const struct sockaddr *sock_addr_native(const struct sock_addr *addr);
/* The file of a unix address, NULL if it has none; `private`: it stands for "unix:@name", in sock_folder. */
const char *sock_addr_path(const struct sock_addr *addr, bool *private);

/* A socket, non-blocking and close-on-exec; -1: see errno. */
int sock_make(int family, int type);
/* A port in digits. */
bool sock_port_parse(const char *text, uint16_t *port);

#define SOCK_FOLDER_MAX 43 /* with its final 0 */
/* Where "unix:@name" lives: $XDG_RUNTIME_DIR/hearth if $XDG_RUNTIME_DIR is a directory of ours that nobody
 * else may enter and is short enough, else /tmp/hearth-UID. Names of the abstract space would be anybody's.
 */
void sock_folder(char folder[SOCK_FOLDER_MAX]);
/* Whether the path is that of a name in such a folder. */
bool sock_folder_holds(const char *path);
/* `name` fits: SOCK_NAME_MAX. */
void sock_addr_in_folder(struct sock_addr *addr, const char *folder, const char *name);

/* Before dialling or binding; nothing to do unless the address is a file. To listen in the private folder it
 * is made, and sockets of dead processes are removed from it; it is refused if others can reach into it.
 * `lock` (to listen): a descriptor to close when the socket listens; until then nobody else tries whether the
 * file is stale. */
int MUST_CHECK sock_unix_enter(const struct sock_addr *addr, bool to_listen, int *lock, struct error *error);
/* The same name in the folder below /tmp: whoever listens may have had no $XDG_RUNTIME_DIR. false: there is
 * no other place. */
bool sock_unix_elsewhere(const struct sock_addr *addr, struct sock_addr *other);
/* As bind, with errno; replaces a file that nobody listens on. Only the owner may connect to it. */
int sock_unix_bind(int fd, const struct sock_addr *addr);
