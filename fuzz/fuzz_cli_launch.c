/* SPDX-License-Identifier: Apache-2.0 */
/* What messages between the launcher and its host agents say: whatever the bytes are, what is taken out of
 * them lies inside of them and has the values that the launcher may use. */
#include <stdlib.h>
#include <string.h>

#include "cli/run/launch_message.h"
#include "security/secret.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void check_numbers(const struct launch_message *m)
{
    switch (m->kind) {
    case LAUNCH_GO:
    case LAUNCH_TAKEN:
        must(m->number == 0 || m->number == 1);
        break;
    case LAUNCH_SIGNAL:
        must(m->number >= 0 && m->number < PASS_COUNT && pass_number((enum launch_signal)m->number) > 0);
        break;
    case LAUNCH_PID:
        must(m->number > 1); /* groups 0 and 1 are not one program's */
        break;
    case LAUNCH_FAILED:
        must(m->number > 0 && m->number < 256);
        break;
    case LAUNCH_END:
        must(m->number >= 0 && m->number < 256 && m->signal >= 0 && m->signal < 128);
        break;
    default:
        break;
    }
}

static void check(const unsigned char *head, const struct launch_message *m)
{
    must(m->bytes == (const char *)head + 4);
    if (m->kind == LAUNCH_NONE)
        return;
    must(m->kind == head[0] && m->len == ((size_t)head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16));
    check_numbers(m);
    for (const char *c = m->reason; *c; c++)
        must(*c >= ' ' && *c <= '~');
    if (m->kind == LAUNCH_FAILED)
        must(strlen(m->reason) == (m->len - 1 < LAUNCH_REASON_MAX - 1 ? m->len - 1 : LAUNCH_REASON_MAX - 1));
    if (m->kind == LAUNCH_VAR || m->kind == LAUNCH_ARG || m->kind == LAUNCH_DIR)
        must(m->len == 0 || !memchr(m->bytes, 0, m->len));
    if (m->kind == LAUNCH_SECRET)
        must(m->len > 0 && m->len < SECRET_TOKEN_MAX);
    if (m->kind == LAUNCH_INPUT)
        must(m->len > 0 && m->len <= INPUT_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    unsigned char *copy = malloc(len > 0 ? len : 1); /* its end is where a sanitizer looks */
    struct launch_message m;
    if (!copy)
        return 0;
    if (len > 0)
        memcpy(copy, bytes, len);
    struct launch_stream stream = {.fd = -1, .data = copy, .len = len, .cap = len};
    for (;;) { /* those behind a wrong one too */
        size_t before = stream.at;
        if (launch_stream_next(&stream, &m) == 1)
            check(copy + before, &m);
        if (stream.at == before)
            break;
    }
    launch_stream_close(&stream);
    return 0;
}
