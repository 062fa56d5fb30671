/* SPDX-License-Identifier: Apache-2.0 */
/* What letters between the launcher and its host agents say: whatever the bytes are, what is taken out of
 * them lies inside of them and has the values that the launcher may use. */
#include <stdlib.h>
#include <string.h>

#include "cli/launch_message.h"
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
    case LETTER_GO:
    case LETTER_TAKEN:
        must(m->number == 0 || m->number == 1);
        break;
    case LETTER_SIGNAL:
        must(m->number >= 0 && m->number < PASS_COUNT && pass_number((enum letter_signal)m->number) > 0);
        break;
    case LETTER_PID:
        must(m->number > 1); /* groups 0 and 1 are not one program's */
        break;
    case LETTER_FAILED:
        must(m->number > 0 && m->number < 256);
        break;
    case LETTER_END:
        must(m->number >= 0 && m->number < 256 && m->signal >= 0 && m->signal < 128);
        break;
    default:
        break;
    }
}

static void check(const struct letter *letter, const struct launch_message *m)
{
    if (m->kind == LETTER_NONE)
        return;
    must(m->kind == letter->kind && m->bytes == (const char *)letter->content && m->len == letter->len);
    check_numbers(m);
    for (const char *c = m->reason; *c; c++)
        must(*c >= ' ' && *c <= '~');
    if (m->kind == LETTER_FAILED)
        must(strlen(m->reason) == (m->len - 1 < LAUNCH_REASON_MAX - 1 ? m->len - 1 : LAUNCH_REASON_MAX - 1));
    if (m->kind == LETTER_VAR || m->kind == LETTER_ARG || m->kind == LETTER_DIR)
        must(m->len == 0 || !memchr(m->bytes, 0, m->len));
    if (m->kind == LETTER_SECRET)
        must(m->len > 0 && m->len < SECRET_TOKEN_MAX);
    if (m->kind == LETTER_INPUT)
        must(m->len > 0 && m->len <= INPUT_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    unsigned char *copy = malloc(len > 0 ? len : 1); /* its end is where a sanitizer looks */
    struct launch_message m;
    struct letter letter;
    if (!copy)
        return 0;
    if (len > 0)
        memcpy(copy, bytes, len);
    struct post post = {.fd = -1, .data = copy, .len = len, .cap = len};
    while (post_next(&post, &letter) == 1) {
        if (launch_message_read(&letter, &m))
            check(&letter, &m);
    }
    post_close(&post);
    return 0;
}
