/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster's secret: 256 random bits and a name for people, and what is derived from it, each with its own
 * label. Without the secret a derived value looks random. docs/security.md. */
#pragma once

#include "core/error.h"

#define SECRET_LEN         32
#define SECRET_NAME_MAX    33  /* of the cluster, with the final 0: letters, digits, '-', '_', '.' */
#define SECRET_TOKEN_MAX   128 /* of a token, with the final 0 */
#define NAMESPACE_LEN      16
#define NAMESPACE_TEXT     33 /* hexadecimal, with the final 0 */
#define SECRET_DERIVED_LEN 32

/* Keys that are derived from the secret and never sent. */
enum secret_key {
    SECRET_KNOCK,    /* shows at the listener, before any costly work, that the dialler has the secret */
    SECRET_DIALLER,  /* the dialler's proof */
    SECRET_LISTENER, /* the listener's proof */
    SECRET_KEYS      /* how many */
};

struct secret; /* in the vault */

int MUST_CHECK secret_draw(const char *name, struct secret **out, struct error *error); /* NULL: "hearth" */
int MUST_CHECK secret_from_bytes(const uint8_t bytes[static SECRET_LEN], const char *name,
                                 struct secret **out, struct error *error);
int MUST_CHECK secret_copy(const struct secret *secret, struct secret **out, struct error *error);
/* A token, or 64 hexadecimal digits; surrounding white space is ignored. A token with a typing error is
 * noticed (checksum). `what` names the source in errors ("HEARTH_SECRET"); errors never hold the text. */
int MUST_CHECK secret_parse(const char *text, const char *what, struct secret **out, struct error *error);
/* A file with a token: the same rules as for a key file. HEARTH_INVALID with *missing set: there is none. */
int MUST_CHECK secret_load(const char *path, struct secret **out, bool *missing, struct error *error);
/* From a descriptor that a launcher left open: read from its beginning, left open, at the same place. */
int MUST_CHECK secret_read_fd(int fd, struct secret **out, struct error *error);
/* Likewise, then it is closed, so that what this process executes does not get it. Further calls with the
 * same number give what was read; in a forked child there is nothing left. */
int MUST_CHECK secret_inherit(int fd, struct secret **out, struct error *error);
/* Writes the token: 0600, parents 0700, whole or not at all. Without `replace` a file that is there stays,
 * HEARTH_INVALID. */
int MUST_CHECK secret_store(const struct secret *secret, const char *path, bool replace, struct error *error);
void secret_close(struct secret *secret); /* wiped; NULL is allowed */

const char *secret_name(const struct secret *secret);
void secret_token(const struct secret *secret, char text[static SECRET_TOKEN_MAX]); /* the caller wipes it */
const uint8_t *secret_bytes(const struct secret *secret);                           /* [SECRET_LEN] */
const uint8_t *secret_key(const struct secret *secret, enum secret_key key);        /* [SECRET_DERIVED_LEN] */
/* The public name of the cluster on the network: tells nothing about the secret. */
const uint8_t *secret_namespace(const struct secret *secret); /* [NAMESPACE_LEN] */
void namespace_text(const uint8_t id[static NAMESPACE_LEN], char text[static NAMESPACE_TEXT]);
