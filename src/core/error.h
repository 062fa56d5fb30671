/* SPDX-License-Identifier: Apache-2.0 */
/* One list of statuses (code, name, sentence), and an error with its text. */
#pragma once

#include <stdarg.h>

#include "core/types.h"

#define ERROR_TEXT_MAX 320

/* Code acts on the numbers; the text (operation, rank, peer, phase, cause) is for people, and no code looks
 * into it. Plain memory, copied freely. */
struct error {
    int status;
    enum hearth_reason reason;
    int rank;                  /* the peer that it is about, as its group counts, or RANK_NONE */
    int origin;                /* the member where it began, by its rank in the cluster; RANK_NONE: here */
    enum hearth_fate fate;     /* of a message or a call: what became of it; not sent to other members */
    char text[ERROR_TEXT_MAX]; /* always terminated; cut with "..." if too long */
};

#define REASON_COUNT 16 /* of enum hearth_reason */

bool status_is_error(int status); /* one of enum hearth_status, and negative */
/* Why an operation ended for the other members, if it ended with this status here. */
enum hearth_reason status_reason(int status);

void error_clear(struct error *error);
/* Sets all but the origin, which becomes RANK_NONE, and returns status, so that a failing function ends with
 * `return error_set(...)`. The reason is HEARTH_REASON_NONE. A NULL error is allowed. */
int error_set(struct error *error, int status, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int error_vset(struct error *error, int status, int rank, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));
/* The same, with a reason. */
int error_because(struct error *error, enum hearth_reason reason, int status, int rank, const char *format,
                  ...) __attribute__((format(printf, 5, 6)));
/* Another text for the same failure; numbers as in `cause`, which may be *error. Returns the status. */
int error_wrap(struct error *error, const struct error *cause, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The text as people see it: with HEARTH_VIEW_CHANGED it ends with how to go on, whatever must be cut. */
void error_show(const struct error *error, char text[static ERROR_TEXT_MAX]);

/* " (tag 7)", for the name of an operation. "": not a tag of a caller. Those of the library's own
 * operations are hashes, beyond 32 bits, and tell people nothing. */
struct tag_text {
    char s[24];
};
struct tag_text tag_text(uint64_t tag);

/* The calling thread's last error: what hearth_error_text shows. */
struct error *error_last(void);
/* Sets it for a call that is refused, as "call: text", and gives the status. */
int error_call(const char *call, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
int error_call_because(const char *call, const struct error *error);
