/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a node says of its cluster is printed, in every form, and no control character gets through. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cluster/status_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void judge(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < len ? (unsigned char)text[i + 1] : 0;
        if ((c < 0x20 && c != '\n') || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char *text = NULL;
    size_t size = 0;
    json_t *status = json_loadb((const char *)bytes, len, 0, NULL);
    FILE *file = open_memstream(&text, &size);
    if (!file)
        abort();
    status_print(status, file);
    nodes_print(json_object_get(status, "nodes"), file);
    topology_print(status, file);
    topology_dot(status, file);
    json_decref(topology_part(status));
    fclose(file);
    judge(text, size);
    free(text);
    json_decref(status);
    return 0;
}
