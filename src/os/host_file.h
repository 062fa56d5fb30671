/* SPDX-License-Identifier: Apache-2.0 */
/* Between files of os/: small files of the system, read whole. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* At most size - 1 bytes, terminated. False: no such file, or it is empty. */
bool file_read(const char *path, char *text, size_t size);
