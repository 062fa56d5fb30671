/* SPDX-License-Identifier: Apache-2.0 */
/* An accepted codec text has a canonical text, which is its own canonical text; no text may do harm. */
#include <stdlib.h>
#include <string.h>

#include "compress/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* A user's codec, "own": its parameters begin with a digit. */
static int own_check(void *arg, const char *parameters)
{
    (void)arg;
    return parameters[0] == 0 || (parameters[0] >= '0' && parameters[0] <= '9') ? 0 : -1;
}

static size_t own_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return call->count;
}

static int own_encode(void *arg, const struct hearth_codec_call *call, const float *values, void *bytes,
                      size_t size, size_t *len)
{
    (void)arg, (void)call, (void)values, (void)bytes, (void)size, (void)len;
    return -1;
}

static int own_decode(void *arg, const struct hearth_codec_call *call, const void *bytes, size_t len,
                      float *values)
{
    (void)arg, (void)call, (void)bytes, (void)len, (void)values;
    return -1;
}

static void own_register(void)
{
    struct hearth_codec_functions own;

    hearth_codec_functions_init(&own);
    own.check = own_check;
    own.bound = own_bound;
    own.encode = own_encode;
    own.decode = own_decode;
    if (hearth_codec_register("own", &own))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char text[CODEC_TEXT_MAX + 64], canonical[CODEC_TEXT_MAX], again[CODEC_TEXT_MAX];
    struct codec_list list;
    struct error error;

    own_register();
    if (len >= sizeof text)
        return 0;
    memcpy(text, bytes, len);
    text[len] = '\0';
    if (codec_parse(text, &list, &error))
        return 0;
    if (codec_names_unknown(text))
        abort();
    codec_list_text(&list, canonical, sizeof canonical);
    if (codec_parse(canonical, &list, &error))
        abort();
    codec_list_text(&list, again, sizeof again);
    if (strcmp(canonical, again) != 0)
        abort();
    for (int i = 0; i < list.count; i++) {
        if (list.codec[i].kind != CODEC_TOPK && list.codec[i].kind != CODEC_RANDOMK)
            continue;
        size_t keeps = codec_keeps(&list.codec[i], 1000003);
        if (keeps < 1 || keeps > 1000003)
            abort();
    }
    return 0;
}
