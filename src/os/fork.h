/* SPDX-License-Identifier: Apache-2.0 */
/* What a forked child must not keep: as long as it holds the other end of a connection, peers of a parent
 * that was killed see nothing close. Data loaders fork, so this is no rare case. */
#pragma once

/* From now on a child of fork() closes its copy. Harmless for -1. Descriptors above FORK_FD_MAX are kept. */
void fork_closes(int fd);
/* No longer: to be called before it is closed here, since its number may soon be another's. */
void fork_keeps(int fd);

#define FORK_FD_MAX 65535
