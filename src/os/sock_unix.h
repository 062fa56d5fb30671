/* SPDX-License-Identifier: Apache-2.0 */
/* Between files of os/: what only unix sockets need. */
#ifndef OS_SOCK_UNIX_H
#define OS_SOCK_UNIX_H

#include "os/sock.h"

/* Before dialling or binding; nothing to do unless the address is a file. Makes the private folder (only to
 * listen), and refuses it if others can reach into it. `lock` (to listen): a descriptor to close when the
 * socket listens; until then nobody else tries whether the file is stale. */
int MUST_CHECK sock_unix_enter(const struct sock_addr *addr, bool to_listen, int *lock, struct error *error);
/* As bind, with errno; replaces a file that nobody listens on. Only the owner may connect to it. */
int sock_unix_bind(int fd, const struct sock_addr *addr);

#endif
