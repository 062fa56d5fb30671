/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions for one buffer by itself: arguments checked, then compress/package.h. */
#include "compress/package.h"
#include "gradient/compressor.h"
#include "kernel/kernel.h"

int hearth_codec_check(const char *codec)
{
    struct codec_list list;

    if (!codec)
        return error_call("codec_check", HEARTH_INVALID, "codec is NULL");
    return codec_parse(codec, &list, error_last());
}

/* The one codec that a text names. */
static int codec_named(const char *call, const char *text, struct codec *codec)
{
    struct codec_list list;

    if (!text)
        return error_call(call, HEARTH_INVALID, "codec is NULL");
    int status = codec_parse(text, &list, error_last());
    if (status)
        return status;
    if (list.automatic)
        return error_call(call, HEARTH_INVALID, "\"%s\": auto needs a network to choose for, name one codec",
                          text);
    *codec = list.codec[0];
    return HEARTH_OK;
}

size_t hearth_codec_bound(const char *codec, size_t count, enum hearth_dtype dtype)
{
    struct codec named;
    struct package package = {.codec = &named, .dtype = dtype, .count = count};

    if (codec_named("compress_bound", codec, &named) || package_check(&package, error_last()))
        return 0;
    return package_bound(&package);
}

int hearth_codec_compress(const char *codec, uint64_t key, const void *source, size_t count,
                          enum hearth_dtype dtype, void *residual, void *target, size_t size, size_t *len)
{
    struct codec named;
    struct package package = {.codec = &named, .dtype = dtype, .count = count, .key = key};
    struct package_io io = {.source = source, .residual = residual, .bytes = target, .size = size};
    struct heap heap;

    int status = codec_named("compress", codec, &named);
    if (status)
        return status;
    if ((!source && count > 0) || !target || !len)
        return error_call("compress", HEARTH_INVALID, "%s is NULL",
                          !target ? "target"
                          : !len  ? "len"
                                  : "source");
    heap_init(&heap, 0);
    uint64_t mode = fpmode_enter();
    status = package_encode(&package, &heap, &io, len, error_last());
    fpmode_leave(mode);
    return status;
}

int hearth_codec_decompress(const void *bytes, size_t len, void *target, size_t count,
                            enum hearth_dtype dtype)
{
    struct package_out out = {.target = target, .count = count, .dtype = dtype};
    struct heap heap;

    if (!bytes || (!target && count > 0))
        return error_call("decompress", HEARTH_INVALID, "%s is NULL", !bytes ? "bytes" : "target");
    heap_init(&heap, 0);
    uint64_t mode = fpmode_enter();
    int status = package_decode(&heap, bytes, len, &out, error_last());
    fpmode_leave(mode);
    return status;
}
