/* SPDX-License-Identifier: Apache-2.0 */
/* Between files of os/: what only unix sockets need. */
#pragma once

#include "os/sock.h"

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
