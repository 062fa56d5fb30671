/* SPDX-License-Identifier: Apache-2.0 */
/* The file of jobs that a machine remembers. Its sum is made right, so that what stands behind it is read; an
 * entry that is taken must encode to the bytes it came from. */
#include <stdlib.h>
#include <string.h>

#include "core/crc32c.h"
#include "membership/job_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static uint8_t file[JOB_FILE_MAX], again[JOB_FILE_ENTRY_MAX];
    static struct job_memory memory;
    static struct view now;
    bool missing[VIEW_MEMBERS_MAX];
    const char *what = NULL;
    struct reader r;
    int count = 0;

    if (!job_file_begin(&r, bytes, len, &count, &what) && !what)
        abort();
    if (len > sizeof file - 4)
        return 0;
    memcpy(file, bytes, len);
    store_u32(file + len, crc32c(0, file, len));
    if (!job_file_begin(&r, file, len + 4, &count, &what))
        return 0;
    for (int i = 0; i < count; i++) {
        const uint8_t *begin = r.at;
        if (!job_file_next(&r, &memory))
            return 0;
        struct writer w = writer_of(again, sizeof again);
        job_file_put(&w, &memory);
        if (w.bad || (size_t)(w.at - again) != (size_t)(r.at - begin) ||
            memcmp(again, begin, (size_t)(r.at - begin)) != 0)
            abort();
        (void)job_record_elsewhere(&memory.ran, &now, NULL, NULL, missing);
        now = memory.ran;
        now.instance++;
    }
    return 0;
}
