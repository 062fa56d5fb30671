/* SPDX-License-Identifier: Apache-2.0 */
/* Where the code that runs was loaded from. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool self_program_folder(char *path, size_t size); /* of the running program; false: unknown */
bool self_library_folder(char *path, size_t size); /* of the file that this code came from; likewise */
bool self_can_run(const char *path);               /* a file that we may execute */
