/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster's secret, what is derived from it, and its token.
 *
 * A token is `hearth1-NAME-CODE`. CODE is Crockford's base32 (58 characters) of the 32 bytes of the secret
 * and 4 of a checksum: the beginning of SHA3-256 over `hearth token 1`, the name in lower case, a zero byte,
 * and the secret. Case does not matter, and i, l, o are read as 1, 1, 0, so a token survives paper and
 * telephone. NAME may have '-' in it: CODE has none, so it begins behind the last one. */
#include "security/secret.h"

#include <stdio.h>
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <nettle/sha3.h>

#include "os/private_file.h"
#include "os/random.h"
#include "os/thread.h"
#include "security/base32.h"
#include "security/vault.h"

#define NAME_DEFAULT "hearth"
#define TOKEN_HEAD   "hearth1-"
#define CHECK_LEN    4u
#define CHECK_AT     SECRET_LEN
#define CODE_BYTES   (SECRET_LEN + CHECK_LEN)
#define CODE_LEN     BASE32_LEN(CODE_BYTES)
#define HEX_LEN      (2u * SECRET_LEN)
#define FILE_MAX     1024 /* of what is read to see whether it is a token */

_Static_assert(sizeof(TOKEN_HEAD) + SECRET_NAME_MAX + CODE_LEN <= SECRET_TOKEN_MAX, "every token has room");

struct secret {
    uint8_t code[CODE_BYTES]; /* what a token holds: the secret and, from CHECK_AT, the checksum */
    uint8_t namespace[NAMESPACE_LEN];
    uint8_t keys[SECRET_KEYS][SECRET_DERIVED_LEN];
    uint8_t extract[SECRET_DERIVED_LEN]; /* only while keys are derived */
    uint8_t digest[SHA3_256_DIGEST_SIZE];
    struct sha3_256_ctx hash; /* here, and not on a stack, since it holds what it has read */
    char name[SECRET_NAME_MAX];
};

/* ---- names ---- */

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool name_ok(const char *name, size_t len)
{
    if (len < 1 || len >= SECRET_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        if (!is_alpha(c) && !(c >= '0' && c <= '9') && c != '-' && c != '_' && c != '.')
            return false;
    }
    return true;
}

/* ---- derivations, as docs/wire.md has them ---- */

static void hash_begin(struct secret *secret, const char *label)
{
    sha3_256_init(&secret->hash);
    sha3_256_update(&secret->hash, strlen(label), (const uint8_t *)label);
}

/* With the secret at the end; the digest is cut. */
static void hash_end(struct secret *secret, uint8_t *target, size_t len)
{
    sha3_256_update(&secret->hash, SECRET_LEN, secret->code);
    sha3_256_digest(&secret->hash, sizeof secret->digest, secret->digest);
    memcpy(target, secret->digest, len);
}

static void derive_check(struct secret *secret)
{
    hash_begin(secret, "hearth token 1");
    for (size_t i = 0; i <= strlen(secret->name); i++) {
        uint8_t c = (uint8_t)ascii_lower(secret->name[i]);
        sha3_256_update(&secret->hash, 1, &c);
    }
    hash_end(secret, secret->code + CHECK_AT, CHECK_LEN);
}

static gnutls_datum_t datum_of(const void *bytes, size_t len)
{
    return (gnutls_datum_t){.data = (unsigned char *)bytes, .size = (unsigned)len};
}

static bool derive_keys(struct secret *secret)
{
    static const char salt_text[] = "hearth 1";
    static const char *const infos[SECRET_KEYS] = {"knock", "dialler", "listener"};
    gnutls_datum_t input = datum_of(secret->code, SECRET_LEN);
    gnutls_datum_t salt = datum_of(salt_text, sizeof salt_text - 1);
    gnutls_datum_t extract = datum_of(secret->extract, sizeof secret->extract);

    if (gnutls_hkdf_extract(GNUTLS_MAC_SHA256, &input, &salt, secret->extract))
        return false;
    for (int i = 0; i < SECRET_KEYS; i++) {
        gnutls_datum_t info = datum_of(infos[i], strlen(infos[i]));
        if (gnutls_hkdf_expand(GNUTLS_MAC_SHA256, &extract, &info, secret->keys[i], SECRET_DERIVED_LEN))
            return false;
    }
    return true;
}

/* With bytes and name in place: the rest of it. */
static int complete(struct secret *secret, struct error *error)
{
    bool derived = derive_keys(secret);

    hash_begin(secret, "hearth namespace 1");
    hash_end(secret, secret->namespace, NAMESPACE_LEN);
    derive_check(secret);
    wipe(&secret->hash, sizeof secret->hash);
    wipe(secret->digest, sizeof secret->digest);
    wipe(secret->extract, sizeof secret->extract);
    wipe_stack();
    return derived ? HEARTH_OK : error_set(error, HEARTH_SYSTEM, RANK_NONE, "secret: GnuTLS derives no keys");
}

/* ---- making one ---- */

static int no_memory(struct error *error)
{
    return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "secret: there is no memory for it");
}

/* With a name that is good; NULL: no memory. */
static struct secret *secret_named(const char *name, size_t len)
{
    struct secret *secret = vault_alloc(sizeof *secret);

    if (secret)
        memcpy(secret->name, name, len);
    return secret;
}

/* Gives it to the caller, or closes it if there was an error. */
static int hand_out(struct secret *secret, int status, struct secret **out)
{
    if (status)
        secret_close(secret);
    else
        *out = secret;
    return status;
}

/* `bytes` NULL: drawn. */
static int make(const uint8_t *bytes, const char *name, struct secret **out, struct error *error)
{
    struct secret *secret;
    int status = HEARTH_OK;

    name = name ? name : NAME_DEFAULT;
    if (!name_ok(name, strlen(name)))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "a cluster's name has 1 to %d letters, digits, '-', '_' or '.'",
                         SECRET_NAME_MAX - 1);
    secret = secret_named(name, strlen(name));
    if (!secret)
        return no_memory(error);
    if (bytes)
        memcpy(secret->code, bytes, SECRET_LEN);
    else if (random_bytes(secret->code, SECRET_LEN))
        status = error_set(error, HEARTH_SYSTEM, RANK_NONE, "secret: the system gives no random bytes");
    if (!status)
        status = complete(secret, error);
    return hand_out(secret, status, out);
}

int secret_draw(const char *name, struct secret **out, struct error *error)
{
    return make(NULL, name, out, error);
}

int secret_from_bytes(const uint8_t bytes[static SECRET_LEN], const char *name, struct secret **out,
                      struct error *error)
{
    return make(bytes, name, out, error);
}

int secret_copy(const struct secret *secret, struct secret **out, struct error *error)
{
    return make(secret->code, secret->name, out, error);
}

void secret_close(struct secret *secret)
{
    vault_free(secret);
}

/* ---- tokens ---- */

void secret_token(const struct secret *secret, char text[static SECRET_TOKEN_MAX])
{
    size_t len = (size_t)snprintf(text, SECRET_TOKEN_MAX, TOKEN_HEAD "%s-", secret->name);

    base32_encode(secret->code, CODE_BYTES, text + len);
    text[len + CODE_LEN] = '\0';
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool begins(const char *text, size_t len, const char *head)
{
    size_t i = 0;

    while (head[i] && i < len && ascii_lower(text[i]) == head[i])
        i++;
    return !head[i];
}

static int bad_token(struct error *error, const char *what)
{
    return error_set(error, HEARTH_INVALID, RANK_NONE,
                     "%s: this is no join token (hearth1-NAME-CODE, as `hearth init` prints it) and no %u "
                     "hexadecimal digits",
                     what, HEX_LEN);
}

static int parse_hex(const char *text, const char *what, struct secret **out, struct error *error)
{
    struct secret *secret = secret_named(NAME_DEFAULT, strlen(NAME_DEFAULT));
    int status;

    if (!secret)
        return no_memory(error);
    if (hex_decode(text, secret->code, SECRET_LEN))
        status = complete(secret, error);
    else
        status = bad_token(error, what);
    return hand_out(secret, status, out);
}

/* `name` has len good characters, and behind them stand '-' and the code. */
static int parse_code(const char *name, size_t len, const char *what, struct secret **out,
                      struct error *error)
{
    struct secret *secret = secret_named(name, len);
    uint8_t check[CHECK_LEN];
    int status;

    if (!secret)
        return no_memory(error);
    if (!base32_decode(name + len + 1, secret->code, CODE_BYTES)) {
        status = error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "%s: the token's last part has a character that does not belong there: copy it again", what);
    } else {
        memcpy(check, secret->code + CHECK_AT, CHECK_LEN);
        status = complete(secret, error);
        if (!status && memcmp(check, secret->code + CHECK_AT, CHECK_LEN) != 0)
            status =
                error_set(error, HEARTH_INVALID, RANK_NONE,
                          "%s: the token has a typing error (its checksum is wrong): copy it again", what);
    }
    return hand_out(secret, status, out);
}

int secret_parse(const char *text, const char *what, struct secret **out, struct error *error)
{
    const size_t head = sizeof(TOKEN_HEAD) - 1;
    size_t len;

    while (is_space(*text))
        text++;
    len = strlen(text);
    while (len > 0 && is_space(text[len - 1]))
        len--;
    if (len == 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "%s: it is empty: give a join token (hearth1-NAME-CODE, as `hearth init` prints it)",
                         what);
    if (len == HEX_LEN && !begins(text, len, TOKEN_HEAD))
        return parse_hex(text, what, out, error);
    if (!begins(text, len, TOKEN_HEAD))
        return bad_token(error, what);
    if (len < head + 1 + 1 + CODE_LEN || text[len - CODE_LEN - 1] != '-')
        return error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "%s: the token is cut short or has something added: its last part must have %u characters; "
            "copy it again",
            what, CODE_LEN);
    if (!name_ok(text + head, len - head - 1 - CODE_LEN))
        return error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "%s: the token's name has more than %d characters, or one that does not belong there: "
            "copy it again",
            what, SECRET_NAME_MAX - 1);
    return parse_code(text + head, len - head - 1 - CODE_LEN, what, out, error);
}

/* ---- files ---- */

/* What was read, as a text: it has room for a final 0. */
static int parse_file(char *text, size_t len, const char *what, struct secret **out, struct error *error)
{
    text[len] = '\0';
    if (strlen(text) != len)
        return bad_token(error, what);
    return secret_parse(text, what, out, error);
}

int secret_load(const char *path, struct secret **out, bool *missing, struct error *error)
{
    char *text = vault_alloc(FILE_MAX + 1);
    size_t len = FILE_MAX;
    int status;

    *missing = false;
    if (!text)
        return no_memory(error);
    status = private_file_read(path, PRIVATE_SECRET, text, &len, missing, error);
    if (*missing)
        error_set(
            error, status, RANK_NONE,
            "there is no secret in %s: make one with `hearth init`, or store one with `hearth join TOKEN`",
            path);
    else if (!status)
        status = parse_file(text, len, path, out, error);
    vault_free(text);
    return status;
}

int secret_read_fd(int fd, struct secret **out, struct error *error)
{
    char *text = vault_alloc(FILE_MAX + 1), what[32];
    size_t len = FILE_MAX;
    int status;

    if (!text)
        return no_memory(error);
    snprintf(what, sizeof what, "descriptor %d", fd);
    status = private_file_read_fd(fd, text, &len, error);
    if (!status)
        status = parse_file(text, len, what, out, error);
    vault_free(text);
    return status;
}

int secret_store(const struct secret *secret, const char *path, bool replace, struct error *error)
{
    char *text = vault_alloc(SECRET_TOKEN_MAX + 1);
    size_t len;
    bool there;
    int status;

    if (!text)
        return no_memory(error);
    secret_token(secret, text);
    len = strlen(text);
    text[len++] = '\n';
    status = private_file_write(path, text, len, replace, &there, error);
    vault_free(text);
    return status;
}

/* ---- inherited from a launcher, in an open descriptor ---- */

/* Of this process alone: in a forked child its memory is empty. */
static struct {
    struct mutex lock;
    int process, fd;
    struct secret *secret;
} kept = {.lock = MUTEX_STATIC, .fd = -1};

/* The number may be another file's by now: only a descriptor that holds a token is taken, and then closed. */
static int inherit(int fd, struct secret **out, struct error *error)
{
    struct secret *read = NULL;
    int process = process_id(), status = secret_read_fd(fd, &read, error);

    if (status == HEARTH_OK) {
        private_file_close_fd(fd);
        secret_close(kept.secret);
        kept.secret = read;
        kept.fd = fd;
        kept.process = process;
    } else if (!kept.secret || kept.fd != fd || kept.process != process) {
        return status;
    }
    return secret_copy(kept.secret, out, error);
}

int secret_inherit(int fd, struct secret **out, struct error *error)
{
    mutex_lock(&kept.lock);
    int status = inherit(fd, out, error);
    mutex_unlock(&kept.lock);
    return status;
}

/* ---- what it holds ---- */

const char *secret_name(const struct secret *secret)
{
    return secret->name;
}

const uint8_t *secret_bytes(const struct secret *secret)
{
    return secret->code;
}

const uint8_t *secret_key(const struct secret *secret, enum secret_key key)
{
    return secret->keys[key];
}

const uint8_t *secret_namespace(const struct secret *secret)
{
    return secret->namespace;
}

void namespace_text(const uint8_t id[static NAMESPACE_LEN], char text[static NAMESPACE_TEXT])
{
    hex_encode(id, NAMESPACE_LEN, text);
    text[NAMESPACE_TEXT - 1] = '\0';
}
