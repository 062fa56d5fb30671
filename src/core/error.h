/* SPDX-License-Identifier: Apache-2.0 */
/* One list of statuses (code, name, sentence), and an error with its text. */
#ifndef CORE_ERROR_H
#define CORE_ERROR_H

#include <stdarg.h>

#include "core/types.h"

#define ERROR_TEXT_MAX 320

/* A status with the words for a person: operation, rank, peer, phase, reason. Plain memory, copied freely. */
struct error {
    int status;
    int rank;                  /* whom it is about, or RANK_NONE */
    char text[ERROR_TEXT_MAX]; /* always terminated; cut with "..." if too long */
};

bool status_is_error(int status); /* one of enum hearth_status, but neither HEARTH_OK nor HEARTH_PENDING */

void error_clear(struct error *error);
/* Sets all three and returns status, so that a failing function ends with `return error_set(...)`. A NULL
 * error is allowed. */
int error_set(struct error *error, int status, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int error_vset(struct error *error, int status, int rank, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));

/* A text of HEARTH_VIEW_CHANGED ends with how to go on, whatever must be cut for it. Others stay. */
void error_advise(struct error *error);

/* " (tag 7)", for the name of an operation. "": nobody has given that tag. Those of the library's own
 * operations are hashes, beyond 32 bits, and tell people nothing. */
struct tag_text {
    char s[24];
};
struct tag_text tag_text(uint64_t tag);

/* The calling thread's last error: what hearth_error_text shows. */
struct error *error_last(void);

#endif
