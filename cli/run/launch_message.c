/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the launcher and its host agents: the lengths and values that each kind may have. */
#include "cli/run/launch_message.h"

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
    case LAUNCH_DIR:
        *out = (struct bounds){1, LAUNCH_CONTENT_MAX};
        return true;
    case LAUNCH_VAR:
        *out = (struct bounds){2, LAUNCH_CONTENT_MAX};
        return true;
    case LAUNCH_ARG:
        *out = (struct bounds){0, LAUNCH_CONTENT_MAX};
        return true;
    case LAUNCH_SECRET:
        *out = (struct bounds){1, SECRET_TOKEN_MAX - 1};
        return true;
    case LAUNCH_INPUT:
        *out = (struct bounds){1, INPUT_MAX};
        return true;
    case LAUNCH_INPUT_END:
        *out = (struct bounds){0, 0};
        return true;
    case LAUNCH_GO:
    case LAUNCH_SIGNAL:
    case LAUNCH_TAKEN:
        *out = (struct bounds){1, 1};
        return true;
    case LAUNCH_HELLO:
        *out = (struct bounds){sizeof LAUNCH_STREAM_GREETING - 1, sizeof LAUNCH_STREAM_GREETING - 1};
        return true;
    case LAUNCH_PID:
        *out = (struct bounds){4, 4};
        return true;
    case LAUNCH_OUT:
    case LAUNCH_ERR:
        *out = (struct bounds){0, OUTPUT_MAX};
        return true;
    case LAUNCH_FAILED:
        *out = (struct bounds){1, LAUNCH_CONTENT_MAX};
        return true;
    case LAUNCH_END:
        *out = (struct bounds){2, 2};
        return true;
    default:
        return false;
    }
}

static bool number_good(const struct launch_message *m)
{
    switch (m->kind) {
    case LAUNCH_GO:
    case LAUNCH_TAKEN:
        return m->number <= 1;
    case LAUNCH_SIGNAL:
        return m->number < PASS_COUNT;
    case LAUNCH_PID:
        return m->number > 1;
    case LAUNCH_FAILED:
        return m->number > 0;
    case LAUNCH_END:
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

static bool content_good(const struct launch_frame *frame)
{
    switch (frame->kind) {
    case LAUNCH_DIR:
    case LAUNCH_VAR:
    case LAUNCH_ARG:
        return frame->len == 0 || !memchr(frame->content, 0, frame->len);
    case LAUNCH_HELLO:
        return memcmp(frame->content, LAUNCH_STREAM_GREETING, frame->len) == 0;
    default:
        return true;
    }
}

static void take_numbers(const struct launch_frame *frame, struct launch_message *out)
{
    const unsigned char *c = frame->content;
    uint32_t pid = 0;
    switch (frame->kind) {
    case LAUNCH_GO:
    case LAUNCH_TAKEN:
    case LAUNCH_SIGNAL:
    case LAUNCH_FAILED:
        out->number = c[0];
        break;
    case LAUNCH_END:
        out->number = c[0];
        out->signal = c[1];
        break;
    case LAUNCH_PID:
        for (int i = 0; i < 4; i++)
            pid |= (uint32_t)c[i] << 8 * i;
        out->number = pid <= INT_MAX ? (int)pid : 0;
        break;
    default:
        break;
    }
}

bool launch_message_read(const struct launch_frame *frame, struct launch_message *out)
{
    struct bounds bounds;
    *out = (struct launch_message){.kind = frame->kind};
    if (!bounds_of(frame->kind, &bounds)) {
        out->kind = LAUNCH_NONE;
        return true;
    }
    if (frame->len < bounds.min || frame->len > bounds.max || !content_good(frame))
        return false;
    out->bytes = (const char *)frame->content;
    out->len = frame->len;
    take_numbers(frame, out);
    if (frame->kind == LAUNCH_FAILED)
        take_reason(out->bytes + 1, out->len - 1, out->reason);
    return number_good(out);
}
