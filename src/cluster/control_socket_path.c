/* SPDX-License-Identifier: Apache-2.0 */
/* Where the control socket of a node is: one name for each user and config folder. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cluster/control_socket.h"
#include "core/hash.h"

void control_socket_place(const char *folder, uint32_t user, char *path, size_t size)
{
    snprintf(path, size, "unix:@hearth-%" PRIu32 "-%016" PRIx64, user, hash64(0, folder, strlen(folder)));
}
