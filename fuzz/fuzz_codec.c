/* SPDX-License-Identifier: Apache-2.0 */
/* An accepted codec text has a canonical text, which is its own canonical text; no text may do harm. */
#include <stdlib.h>
#include <string.h>

#include "compress/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char text[CODEC_TEXT_MAX + 64], canonical[CODEC_TEXT_MAX], again[CODEC_TEXT_MAX];
    struct codec_list list;
    struct error error;

    if (len >= sizeof text)
        return 0;
    memcpy(text, bytes, len);
    text[len] = '\0';
    if (codec_parse(text, &list, &error))
        return 0;
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
