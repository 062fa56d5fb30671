/* SPDX-License-Identifier: Apache-2.0 */
/* Letters as bytes: their header, HELLO, and a reader that puts letters together from whatever pieces come.
 * docs/letters.md, is the law. No I/O. */
#ifndef HOME_LETTER_READER_H
#define HOME_LETTER_READER_H

#include "core/heap.h"
#include "membership/census.h"
#include "membership/outbox.h"

#define LETTER_MAGIC      0x4c48u /* "HL" */
#define LETTER_VERSION    1u
#define LETTER_HEADER_LEN 8u

struct letter_header {
    uint8_t kind; /* enum letter_kind */
    uint32_t len; /* of the payload */
};
void letter_header_put(uint8_t target[static LETTER_HEADER_LEN], uint8_t kind, size_t len);
/* HEARTH_PROTOCOL, with what is wrong. */
int MUST_CHECK letter_header_get(struct letter_header *header, const uint8_t source[static LETTER_HEADER_LEN],
                                 const char **what);

enum hello_purpose { HELLO_LETTERS = 1, HELLO_PROBE = 2 };
#define LETTER_HELLO_MAX (12u + FELLOW_LEN_MAX)
struct letter_hello {
    uint16_t version_min, version_max;
    uint8_t purpose;
    uint32_t serial; /* counts the hellos of a process */
    struct fellow fellow;
};
/* Bytes; `target` has LETTER_HELLO_MAX. */
size_t letter_hello_encode(const struct letter_hello *hello, uint8_t *target);
int MUST_CHECK letter_hello_decode(struct letter_hello *hello, const void *source, size_t len,
                                   const char **what);

/* Gives one letter after the other; never wants bytes behind the one at hand. */
struct letter_reader {
    struct heap *heap;
    uint8_t head[LETTER_HEADER_LEN];
    struct letter_header header; /* when the head is there */
    size_t got;                  /* bytes of head and payload */
    uint8_t *payload;
    size_t room;
};
void letter_reader_init(struct letter_reader *r, struct heap *heap);
void letter_reader_fini(struct letter_reader *r);
/* Where the next bytes belong, and how many at most: at least one. */
size_t letter_reader_wants(struct letter_reader *r, uint8_t **target);
/* So many were put there. HEARTH_PENDING: go on. HEARTH_OK: header and payload are a letter, until
 * letter_reader_next. HEARTH_PROTOCOL, HEARTH_NO_MEMORY: the end, with what is wrong. */
int MUST_CHECK letter_reader_got(struct letter_reader *r, size_t len, const char **what);
void letter_reader_next(struct letter_reader *r);

#endif
