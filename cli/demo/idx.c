/* SPDX-License-Identifier: Apache-2.0 */
/* Reads labelled images in the IDX format of MNIST and its relatives, plain or gzip.
 *
 * The format: two zero bytes, the type of the elements (8: unsigned byte), the number of dimensions; each
 * dimension as 32 bits, big-endian; then the elements. */
#include "cli/demo/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define TYPE_BYTE      8
#define LEN_MAX        (UINT64_C(1) << 32) /* of the elements of one file */
#define READ_LEN_MAX   (1u << 30)          /* gzread takes an int */
#define BODY_LEN_FIRST ((size_t)1 << 20)   /* what is allocated before anything has been read */
#define PATH_LEN_MAX   512

static bool read_fully(gzFile file, void *target, size_t len)
{
    uint8_t *at = target;
    while (len > 0) {
        unsigned want = len < READ_LEN_MAX ? (unsigned)len : READ_LEN_MAX;
        int got = gzread(file, at, want);
        if (got <= 0)
            return false;
        at += got;
        len -= (size_t)got;
    }
    return true;
}

/* Damaged gzip and a file that just ends are different troubles. */
static int fail_short(gzFile file, const char *path, const char *where, struct error *error)
{
    int code;
    const char *text = gzerror(file, &code);
    if (code != Z_OK && code != Z_BUF_ERROR)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: damaged: %s", path, text);
    return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: truncated: it ends within its %s", path, where);
}

static int read_header(gzFile file, const char *path, struct idx *idx, struct error *error)
{
    uint8_t head[4], dim[4];
    uint64_t len = 1;
    if (!read_fully(file, head, sizeof head))
        return fail_short(file, path, "header", error);
    if (head[0] || head[1] || head[2] != TYPE_BYTE || head[3] < 1 || head[3] > IDX_DIMS_MAX)
        return error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "%s: not an IDX file of bytes: it begins with %02x %02x %02x %02x instead of 00 00 08 01 to "
            "00 00 08 03",
            path, head[0], head[1], head[2], head[3]);
    idx->dims = head[3];
    for (int i = 0; i < idx->dims; i++) {
        if (!read_fully(file, dim, sizeof dim))
            return fail_short(file, path, "header", error);
        idx->dim[i] = (size_t)dim[0] << 24 | (size_t)dim[1] << 16 | (size_t)dim[2] << 8 | dim[3];
        if (idx->dim[i] == 0 || idx->dim[i] > LEN_MAX / len)
            return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: its dimension %d, %zu, is not acceptable",
                             path, i, idx->dim[i]);
        len *= idx->dim[i];
    }
    return HEARTH_OK;
}

/* Memory grows with what is really there, not with what the header announces. */
static int read_body(gzFile file, const char *path, struct idx *idx, struct error *error)
{
    size_t len = 1, done = 0, room = BODY_LEN_FIRST;
    uint8_t more;
    for (int i = 0; i < idx->dims; i++)
        len *= idx->dim[i];
    for (; done < len; done = room, room *= 2) {
        room = room < len ? room : len;
        uint8_t *bytes = realloc(idx->bytes, room);
        if (!bytes)
            return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "%s: no memory for its %zu bytes", path,
                             len);
        idx->bytes = bytes;
        if (!read_fully(file, bytes + done, room - done))
            return fail_short(file, path, "data", error);
    }
    int extra = gzread(file, &more, 1);
    if (extra < 0)
        return fail_short(file, path, "data", error);
    if (extra > 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "%s: longer than the %zu bytes its header announces", path, len);
    return HEARTH_OK;
}

int idx_read(const char *path, struct idx *idx, struct error *error)
{
    struct idx got = {.dims = 0};
    gzFile file = gzopen(path, "rb");
    if (!file)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "%s: cannot be opened", path);
    int status = read_header(file, path, &got, error);
    if (!status)
        status = read_body(file, path, &got, error);
    gzclose(file);
    if (status)
        idx_free(&got);
    else
        *idx = got;
    return status;
}

void idx_free(struct idx *idx)
{
    free(idx->bytes);
    *idx = (struct idx){.dims = 0};
}

/* Plain or .gz, whichever is there. */
static int read_either(const char *dir, const char *stem, const char *what, struct idx *idx,
                       struct error *error)
{
    char path[PATH_LEN_MAX];
    int len = snprintf(path, sizeof path, "%s/%s-%s.gz", dir, stem, what);
    if (len < 0 || (size_t)len >= sizeof path)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%.64s...: the path is too long", dir);
    if (access(path, R_OK) != 0)
        path[len - 3] = 0;
    if (access(path, R_OK) != 0)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "%s: no such file, nor %s.gz", path, path);
    return idx_read(path, idx, error);
}

static int check(const char *dir, const char *stem, struct dataset *set, struct error *error)
{
    if (set->images.dims != 3 || set->labels.dims != 1)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "%s/%s: images need 3 dimensions and labels 1, but these have %d and %d", dir, stem,
                         set->images.dims, set->labels.dims);
    if (set->images.dim[0] != set->labels.dim[0])
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s/%s: %zu images, but %zu labels", dir, stem,
                         set->images.dim[0], set->labels.dim[0]);
    if (set->images.dim[1] > 1024 || set->images.dim[2] > 1024)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "%s/%s: images of %zu x %zu pixels; 1024 x 1024 is the most", dir, stem,
                         set->images.dim[2], set->images.dim[1]);
    set->count = set->images.dim[0];
    set->height = (int)set->images.dim[1];
    set->width = (int)set->images.dim[2];
    for (size_t i = 0; i < set->count; i++) {
        if (set->labels.bytes[i] >= set->classes)
            set->classes = set->labels.bytes[i] + 1;
    }
    return HEARTH_OK;
}

int dataset_read(const char *dir, const char *stem, struct dataset *set, struct error *error)
{
    struct dataset got = {.count = 0};
    int status = read_either(dir, stem, "images-idx3-ubyte", &got.images, error);
    if (!status)
        status = read_either(dir, stem, "labels-idx1-ubyte", &got.labels, error);
    if (!status)
        status = check(dir, stem, &got, error);
    if (status)
        dataset_free(&got);
    else
        *set = got;
    return status;
}

void dataset_free(struct dataset *set)
{
    idx_free(&set->images);
    idx_free(&set->labels);
}
