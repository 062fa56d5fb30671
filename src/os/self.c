/* SPDX-License-Identifier: Apache-2.0 */
/* Where the code that runs was loaded from: as the system and the loader say. */
#define _GNU_SOURCE 1 /* dladdr */
#include "os/self.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_LEN_MAX 4096

static bool folder_of(const char *file, char *path, size_t size)
{
    const char *slash = strrchr(file, '/');

    if (!slash || slash == file || (size_t)(slash - file) >= size)
        return false;
    memcpy(path, file, (size_t)(slash - file));
    path[slash - file] = '\0';
    return true;
}

bool self_program_folder(char *path, size_t size)
{
    char file[PATH_LEN_MAX];
    ssize_t len = readlink("/proc/self/exe", file, sizeof file - 1);

    if (len <= 0)
        return false;
    file[len] = '\0';
    return folder_of(file, path, size);
}

bool self_library_folder(char *path, size_t size)
{
    static const char here = 0; /* any address of ours */
    Dl_info info;

    return dladdr(&here, &info) != 0 && info.dli_fname && folder_of(info.dli_fname, path, size);
}

bool self_can_run(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}
