/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs begin with their size, so that they can grow. A program that was compiled against an older
 * header has fewer fields than the library, one compiled against a newer header has more: the shorter length
 * is copied. Inside the library all structs are whole. */
#pragma once

#include "core/error.h"

/* An input. `own` has `len` bytes and holds the defaults; it takes over the fields that the caller has. Bytes
 * of the caller's that this library does not know must be zero, or HEARTH_UNSUPPORTED: they ask for something
 * that it cannot do. HEARTH_INVALID: size was never set. `name`: of the struct, for the text. */
int MUST_CHECK sized_read(void *own, size_t len, const void *given, const char *name, struct error *error);

/* HEARTH_INVALID: an output is NULL, or its size was never set. `what` and `name`: of the call and of its
 * argument, for the text. */
int MUST_CHECK sized_check(const void *given, const char *what, const char *name, struct error *error);
/* Defaults or an output: fills `size` bytes of the caller's from `len` bytes of ours; the rest is zero. The
 * caller's size becomes `size`. */
void sized_write(void *given, size_t size, const void *own, size_t len);
