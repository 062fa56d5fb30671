/* SPDX-License-Identifier: Apache-2.0 */
/* Reads small files of the system. */
#include "os/host_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool file_read(const char *path, char *text, size_t size)
{
    size_t len = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    do {
        got = read(fd, text + len, size - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    } while (len < size - 1 && (got > 0 || (got < 0 && errno == EINTR)));
    close(fd);
    text[len] = '\0';
    return len > 0;
}
