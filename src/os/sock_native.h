/* SPDX-License-Identifier: Apache-2.0 */
/* Between files of os/: struct sock_addr and the system's addresses. */
#pragma once

#include <sys/socket.h>

#include "os/sock.h"

/* False: of a family we do not know. IPv4 in IPv6 clothes (::ffff:1.2.3.4) becomes IPv4. */
bool sock_addr_take(struct sock_addr *addr, const struct sockaddr *native, socklen_t len);
/* `len` of it are meant. */
const struct sockaddr *sock_addr_native(const struct sock_addr *addr);
/* The file of a unix address, NULL if it has none; `private`: it stands for "unix:@name", in sock_folder. */
const char *sock_addr_path(const struct sock_addr *addr, bool *private);

#define SOCK_FOLDER_MAX 43 /* with its final 0 */
/* Where "unix:@name" lives: $XDG_RUNTIME_DIR/hearth if $XDG_RUNTIME_DIR is a directory of ours that nobody
 * else may enter and is short enough, else /tmp/hearth-UID. Names of the abstract space would be anybody's.
 */
void sock_folder(char folder[SOCK_FOLDER_MAX]);
/* Whether the path is that of a name in such a folder. */
bool sock_folder_holds(const char *path);
/* `name` fits: SOCK_NAME_MAX. */
void sock_addr_in_folder(struct sock_addr *addr, const char *folder, const char *name);
