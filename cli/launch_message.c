/* SPDX-License-Identifier: Apache-2.0 */
/* Letters between the launcher and its host agents: the lengths and values that each kind may have. */
#include "cli/launch_message.h"

#include <limits.h>
#include <string.h>

#include "security/secret.h"

#define SIGNAL_MAX 127 /* what a status of wait(2) has room for */

struct bounds {
    size_t min, max;
};

/* Lengths of what each kind carries. */
static bool bounds_of(int kind, struct bounds *out)
{
    switch (kind) {
    case LETTER_DIR:
        *out = (struct bounds){1, LETTER_MAX};
        return true;
    case LETTER_VAR:
        *out = (struct bounds){2, LETTER_MAX};
        return true;
    case LETTER_ARG:
        *out = (struct bounds){0, LETTER_MAX};
        return true;
    case LETTER_SECRET:
        *out = (struct bounds){1, SECRET_TOKEN_MAX - 1};
        return true;
    case LETTER_INPUT:
        *out = (struct bounds){1, INPUT_MAX};
        return true;
    case LETTER_INPUT_END:
        *out = (struct bounds){0, 0};
        return true;
    case LETTER_GO:
    case LETTER_SIGNAL:
    case LETTER_TAKEN:
        *out = (struct bounds){1, 1};
        return true;
    case LETTER_HELLO:
        *out = (struct bounds){sizeof POST_GREETING - 1, sizeof POST_GREETING - 1};
        return true;
    case LETTER_PID:
        *out = (struct bounds){4, 4};
        return true;
    case LETTER_OUT:
    case LETTER_ERR:
        *out = (struct bounds){0, OUTPUT_MAX};
        return true;
    case LETTER_FAILED:
        *out = (struct bounds){1, LETTER_MAX};
        return true;
    case LETTER_END:
        *out = (struct bounds){2, 2};
        return true;
    default:
        return false;
    }
}

static bool number_good(const struct launch_message *m)
{
    switch (m->kind) {
    case LETTER_GO:
    case LETTER_TAKEN:
        return m->number <= 1;
    case LETTER_SIGNAL:
        return m->number < PASS_COUNT;
    case LETTER_PID:
        return m->number > 1;
    case LETTER_FAILED:
        return m->number > 0;
    case LETTER_END:
        return m->signal <= SIGNAL_MAX;
    default:
        return true;
    }
}

/* What another machine says is shown on a terminal. */
static void take_reason(const char *bytes, size_t len, char reason[static LAUNCH_REASON_MAX])
{
    len = len < LAUNCH_REASON_MAX - 1 ? len : LAUNCH_REASON_MAX - 1;
    for (size_t i = 0; i < len; i++)
        reason[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    reason[len] = 0;
}

static bool content_good(const struct letter *letter)
{
    switch (letter->kind) {
    case LETTER_DIR:
    case LETTER_VAR:
    case LETTER_ARG:
        return letter->len == 0 || !memchr(letter->content, 0, letter->len);
    case LETTER_HELLO:
        return memcmp(letter->content, POST_GREETING, letter->len) == 0;
    default:
        return true;
    }
}

static void take_numbers(const struct letter *letter, struct launch_message *out)
{
    const unsigned char *c = letter->content;
    uint32_t pid = 0;
    switch (letter->kind) {
    case LETTER_GO:
    case LETTER_TAKEN:
    case LETTER_SIGNAL:
    case LETTER_FAILED:
        out->number = c[0];
        break;
    case LETTER_END:
        out->number = c[0];
        out->signal = c[1];
        break;
    case LETTER_PID:
        for (int i = 0; i < 4; i++)
            pid |= (uint32_t)c[i] << 8 * i;
        out->number = pid <= INT_MAX ? (int)pid : 0;
        break;
    default:
        break;
    }
}

bool launch_message_read(const struct letter *letter, struct launch_message *out)
{
    struct bounds bounds;
    *out = (struct launch_message){.kind = letter->kind};
    if (!bounds_of(letter->kind, &bounds)) {
        out->kind = LETTER_NONE;
        return true;
    }
    if (letter->len < bounds.min || letter->len > bounds.max || !content_good(letter))
        return false;
    out->bytes = (const char *)letter->content;
    out->len = letter->len;
    take_numbers(letter, out);
    if (letter->kind == LETTER_FAILED)
        take_reason(out->bytes + 1, out->len - 1, out->reason);
    return number_good(out);
}
