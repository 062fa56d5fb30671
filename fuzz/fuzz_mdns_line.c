/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of the helper, commands to it and strings of TXT records: what is taken is written and read again as
 * the same; no bytes may do harm. The first byte chooses. */
#include <stdlib.h>
#include <string.h>

#include "discovery/mdns_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void must(bool good)
{
    if (!good)
        abort();
}

static void fuzz_line(const char *text, size_t len)
{
    struct mdns_line line, again;
    char written[MDNS_LINE_MAX + 1];
    const char *what = NULL;

    if (mdns_line_parse(&line, text, len, &what) != HEARTH_OK) {
        must(what);
        return;
    }
    if (line.kind != MDNS_FOUND)
        return;
    /* One without a name ends with a space, and so may be a byte longer than the line that was read. */
    size_t size = mdns_line_found(&line.sighting, written, sizeof written);
    if (size == 0)
        return;
    must(mdns_line_parse(&again, written, size - 1, &what) == HEARTH_OK);
    must(memcmp(&again, &line, sizeof line) == 0);
}

static void fuzz_command(const char *text, size_t len)
{
    struct mdns_command command, again;
    char written[MDNS_LINE_MAX + 1];
    const char *what = NULL;

    if (mdns_command_parse(&command, text, len, &what) != HEARTH_OK) {
        must(what);
        return;
    }
    if (command.kind != MDNS_PUBLISH)
        return;
    size_t size = mdns_line_publish(command.self.port != 0 ? &command.self : NULL, written, sizeof written);
    must(size > 0);
    must(mdns_command_parse(&again, written, size - 1, &what) == HEARTH_OK);
    must(memcmp(&again.self, &command.self, sizeof command.self) == 0);
}

/* Strings as a TXT record has them: a length, and so many bytes. */
static void fuzz_txt(const uint8_t *bytes, size_t len)
{
    char items[MDNS_TXT_ITEMS][MDNS_TXT_ITEM_MAX];
    struct sighting s;
    const char *what = NULL;
    unsigned seen = 0;

    memset(&s, 0, sizeof s);
    while (len > 0) {
        size_t size = bytes[0] < len ? bytes[0] : len - 1;
        if (mdns_txt_read(&s, &seen, bytes + 1, size, &what) != HEARTH_OK) {
            must(what);
            return;
        }
        bytes += 1 + size;
        len -= 1 + size;
    }
    must(memchr(s.name, '\0', sizeof s.name));
    if (!mdns_txt_whole(seen))
        return;
    mdns_txt_write(&s, items);
    struct sighting again;
    memset(&again, 0, sizeof again);
    seen = 0;
    for (int i = 0; i < MDNS_TXT_ITEMS; i++)
        must(mdns_txt_read(&again, &seen, items[i], strlen(items[i]), &what) == HEARTH_OK);
    must(memcmp(&again.id, &s.id, sizeof s.id) == 0 && strcmp(again.name, s.name) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len == 0)
        return 0;
    switch (bytes[0] % 3) {
    case 0:
        fuzz_line((const char *)bytes + 1, len - 1);
        return 0;
    case 1:
        fuzz_command((const char *)bytes + 1, len - 1);
        return 0;
    default:
        fuzz_txt(bytes + 1, len - 1);
        return 0;
    }
}
