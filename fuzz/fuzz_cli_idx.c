/* SPDX-License-Identifier: Apache-2.0 */
/* Any file is read or refused with a text that names it; what is read is as long as it says. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/demo/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static uint64_t sum_of(const struct idx *idx)
{
    size_t len = 1;
    uint64_t sum = 0;
    for (int i = 0; i < idx->dims; i++)
        len *= idx->dim[i];
    for (size_t i = 0; i < len; i++)
        sum += idx->bytes[i]; /* a sanitizer sees one byte too many */
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char path[] = "/tmp/hearth-idx-XXXXXX";
    struct error error;
    struct idx idx;
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
        abort();
    close(fd);
    int status = idx_read(path, &idx, &error);
    unlink(path);
    if (status != HEARTH_OK) {
        if (!strstr(error.text, path))
            abort();
        return 0;
    }
    if (sum_of(&idx) > UINT32_MAX * UINT64_C(255))
        abort();
    idx_free(&idx);
    return 0;
}
