/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between a caller's struct and ours, of different lengths. */
#include "core/sized.h"

#include <string.h>

#define SIZE_MIN      (2 * sizeof(size_t)) /* the size, and at least one field */
#define SIZE_MAX_SANE ((size_t)4096)       /* more is uninitialised memory */

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

static bool size_good(size_t size)
{
    return size >= SIZE_MIN && size <= SIZE_MAX_SANE && size % sizeof(size_t) == 0;
}

int sized_check(const void *given, const char *what, const char *name, struct error *error)
{
    if (!given)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: %s is NULL", what, name);
    if (!size_good(size_of(given)))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "%s: %s->size is %zu; set it to sizeof *%s before the call", what, name,
                         size_of(given), name);
    return HEARTH_OK;
}

int sized_read(void *own, size_t len, const void *given, const char *name, struct error *error)
{
    if (!given || !size_good(size_of(given)))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "%s.size is %zu: initialise it with hearth_%s_init", name,
                         given ? size_of(given) : 0, name);
    size_t size = size_of(given);
    for (size_t i = len; i < size; i++)
        if (((const uint8_t *)given)[i] != 0)
            return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                             "%s sets a field that libhearth %s does not have", name,
                             hearth_version_string());
    memcpy(own, given, size < len ? size : len);
    memcpy(own, &len, sizeof len);
    return HEARTH_OK;
}

void sized_write(void *given, size_t size, const void *own, size_t len)
{
    memcpy(given, own, size < len ? size : len);
    if (size > len)
        memset((uint8_t *)given + len, 0, size - len);
    memcpy(given, &size, sizeof size);
}
