/* SPDX-License-Identifier: Apache-2.0 */
/* Where the helper is. The build says where it installs what: HEARTH_HELPER_PATH, absolute, and for trees
 * that were moved HEARTH_HELPER_FROM_BIN and HEARTH_HELPER_FROM_LIB, relative. */
#include <stdio.h>

#include "discovery/helper.h"
#include "os/spawn.h"

#define HELPER_PROGRAM "hearth-mdns"

static bool try(const char *folder, const char *rest, char *path, size_t size)
{
    return (size_t)snprintf(path, size, "%s/%s", folder, rest) < size && self_can_run(path);
}

bool helper_search(char *path, size_t size)
{
    char folder[HELPER_PATH_MAX];

    if (self_program_folder(folder, sizeof folder) &&
        (try(folder, HELPER_PROGRAM, path, size) || try(folder, HEARTH_HELPER_FROM_BIN, path, size)))
        return true;
    if (self_library_folder(folder, sizeof folder) &&
        (try(folder, HELPER_PROGRAM, path, size) || try(folder, HEARTH_HELPER_FROM_LIB, path, size)))
        return true;
    snprintf(path, size, "%s", HEARTH_HELPER_PATH);
    return self_can_run(path);
}
