/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a node: its seed in the vault, what is public derived from it once. */
#include "security/node_key.h"

#include <string.h>

#include <nettle/eddsa.h>
#include <nettle/sha3.h>

#include "os/private_file.h"
#include "os/random.h"
#include "security/base32.h"
#include "security/vault.h"

#define FILE_MAX    256 /* of what is read to see whether it is a key file */
#define LOAD_TRIES  3
#define SHORT_BYTES 8 /* of which 60 bits are shown */
#define SHORT_CHARS 12
#define SHORT_GROUP 4

_Static_assert(KEY_SEED_LEN == ED25519_KEY_SIZE, "the file holds a whole seed");
_Static_assert(NODE_ID_LEN == SHA3_256_DIGEST_SIZE, "an id is a whole digest");
_Static_assert(NODE_ID_SHORT == SHORT_CHARS + SHORT_CHARS / SHORT_GROUP,
               "characters, '-' between, a final 0");

struct node_key {
    char file[FILE_MAX]; /* only while it is read or written */
    uint8_t seed[KEY_SEED_LEN];
    uint8_t public_key[PUBLIC_KEY_LEN];
    struct node_id id;
};

/* ---- ids ---- */

void node_id_of(const uint8_t public_key[static PUBLIC_KEY_LEN], struct node_id *id)
{
    struct sha3_256_ctx hash;

    sha3_256_init(&hash);
    sha3_256_update(&hash, PUBLIC_KEY_LEN, public_key);
    sha3_256_digest(&hash, NODE_ID_LEN, id->bytes);
}

bool node_id_equal(const struct node_id *a, const struct node_id *b)
{
    return memcmp(a->bytes, b->bytes, NODE_ID_LEN) == 0;
}

void node_id_text(const struct node_id *id, char text[static NODE_ID_TEXT])
{
    hex_encode(id->bytes, NODE_ID_LEN, text);
    text[NODE_ID_TEXT - 1] = '\0';
}

void node_id_short(const struct node_id *id, char text[static NODE_ID_SHORT])
{
    char chars[BASE32_LEN(SHORT_BYTES)];

    base32_encode(id->bytes, SHORT_BYTES, chars);
    for (int i = 0; i < SHORT_CHARS; i++) {
        if (i > 0 && i % SHORT_GROUP == 0)
            *text++ = '-';
        *text++ = chars[i];
    }
    *text = '\0';
}

int node_id_parse(const char *text, struct node_id *id)
{
    struct node_id read;

    if (strlen(text) != NODE_ID_TEXT - 1 || !hex_decode(text, read.bytes, NODE_ID_LEN))
        return HEARTH_INVALID;
    *id = read;
    return HEARTH_OK;
}

/* ---- keys ----
 *
 * Nettle leaves traces of the seed on the stack, which are wiped here, and of what it computes with on the
 * heap, which are wiped by GnuTLS: it has GMP clear all that it frees. */

static void complete(struct node_key *key)
{
    ed25519_sha512_public_key(key->public_key, key->seed);
    wipe_stack();
    node_id_of(key->public_key, &key->id);
}

static struct node_key *key_empty(struct error *error)
{
    struct node_key *key = vault_alloc(sizeof *key);

    if (!key)
        error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "node key: there is no memory for it");
    return key;
}

int node_key_fresh(struct node_key **out, struct error *error)
{
    struct node_key *key = key_empty(error);

    if (!key)
        return HEARTH_NO_MEMORY;
    if (random_bytes(key->seed, KEY_SEED_LEN)) {
        node_key_close(key);
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "node key: the system gives no random bytes");
    }
    complete(key);
    *out = key;
    return HEARTH_OK;
}

int node_key_copy(const struct node_key *key, struct node_key **out, struct error *error)
{
    struct node_key *copy = key_empty(error);

    if (!copy)
        return HEARTH_NO_MEMORY;
    *copy = *key;
    *out = copy;
    return HEARTH_OK;
}

void node_key_close(struct node_key *key)
{
    vault_free(key);
}

/* ---- the line of a key file ---- */

#define HEAD      "hearth-node-key "
#define VERSION   "1 "
#define HEAD_LEN  (sizeof(HEAD) - 1)
#define SEED_AT   (HEAD_LEN + sizeof(VERSION) - 1)
#define CHECK_LEN 4u
#define CHECK_AT  (SEED_AT + 2 * KEY_SEED_LEN + 1)

_Static_assert(KEY_LINE_LEN == CHECK_AT + 2 * CHECK_LEN + 1, "seed, ' ', checksum, new line");

static void checksum(const uint8_t *seed, uint8_t check[static CHECK_LEN])
{
    static const char label[] = "hearth node key 1";
    uint8_t digest[SHA3_256_DIGEST_SIZE];
    struct sha3_256_ctx hash;

    sha3_256_init(&hash);
    sha3_256_update(&hash, sizeof label - 1, (const uint8_t *)label);
    sha3_256_update(&hash, KEY_SEED_LEN, seed);
    sha3_256_digest(&hash, sizeof digest, digest);
    memcpy(check, digest, CHECK_LEN);
    wipe(&hash, sizeof hash);
}

void key_line_write(const uint8_t seed[static KEY_SEED_LEN], char line[static KEY_LINE_LEN])
{
    uint8_t check[CHECK_LEN];

    checksum(seed, check);
    memcpy(line, HEAD VERSION, SEED_AT);
    hex_encode(seed, KEY_SEED_LEN, line + SEED_AT);
    line[CHECK_AT - 1] = ' ';
    hex_encode(check, CHECK_LEN, line + CHECK_AT);
    line[KEY_LINE_LEN - 1] = '\n';
}

const char *key_line_parse(const char *text, size_t len, uint8_t seed[static KEY_SEED_LEN])
{
    uint8_t read[KEY_SEED_LEN], check[CHECK_LEN], wanted[CHECK_LEN];
    const char *what = NULL;

    if (len == 0)
        return "is empty";
    if (memcmp(text, HEAD, len < HEAD_LEN ? len : HEAD_LEN) != 0)
        return "is no key file of hearth";
    if (len > HEAD_LEN && memcmp(text + HEAD_LEN, VERSION, len < SEED_AT ? len - HEAD_LEN : 2) != 0)
        return "is a key file of another version of hearth";
    if (len < KEY_LINE_LEN - 1)
        return "is cut short";
    if (len > KEY_LINE_LEN || (len == KEY_LINE_LEN && text[len - 1] != '\n'))
        return "has more in it than a key";
    if (text[CHECK_AT - 1] != ' ' || !hex_decode(text + SEED_AT, read, KEY_SEED_LEN) ||
        !hex_decode(text + CHECK_AT, check, CHECK_LEN)) {
        what = "is damaged";
    } else {
        checksum(read, wanted);
        if (memcmp(check, wanted, CHECK_LEN) != 0)
            what = "is damaged (its checksum is wrong)";
        else
            memcpy(seed, read, KEY_SEED_LEN);
    }
    wipe(read, sizeof read);
    return what;
}

/* ---- the file ---- */

static int read_file(const char *path, struct node_key **out, bool *missing, struct error *error)
{
    struct node_key *key = key_empty(error);
    size_t len = sizeof key->file;
    const char *what;
    int status;

    *missing = false;
    if (!key)
        return HEARTH_NO_MEMORY;
    status = private_file_read(path, PRIVATE_SECRET, key->file, &len, missing, error);
    if (!status) {
        what = key_line_parse(key->file, len, key->seed);
        if (what)
            status = error_set(
                error, HEARTH_INVALID, RANK_NONE,
                "%s %s: restore it, or move it away to get a new key, and with it a new node id", path, what);
    }
    if (status) {
        node_key_close(key);
        return status;
    }
    wipe(key->file, sizeof key->file);
    complete(key);
    *out = key;
    return HEARTH_OK;
}

static int write_fresh(const char *path, struct node_key **out, bool *there, struct error *error)
{
    struct node_key *key = NULL;
    int status = node_key_fresh(&key, error);

    *there = false;
    if (status)
        return status;
    key_line_write(key->seed, key->file);
    status = private_file_write(path, key->file, KEY_LINE_LEN, false, there, error);
    wipe(key->file, sizeof key->file);
    if (status)
        node_key_close(key);
    else
        *out = key;
    return status;
}

int node_key_read(const char *path, struct node_key **out, struct error *error)
{
    bool missing;
    int status = read_file(path, out, &missing, error);

    return missing ? error_set(error, HEARTH_INVALID, RANK_NONE, "there is no key file %s", path) : status;
}

int node_key_load(const char *path, struct node_key **out, struct error *error)
{
    bool missing = true, there = true;
    int status = HEARTH_OK;

    /* Another process may make the file just before us, and it may be removed again. */
    for (int i = 0; i < LOAD_TRIES && missing && there; i++) {
        status = read_file(path, out, &missing, error);
        if (missing)
            status = write_fresh(path, out, &there, error);
    }
    return status;
}

/* ---- its use ---- */

const uint8_t *node_key_public(const struct node_key *key)
{
    return key->public_key;
}

const struct node_id *node_key_id(const struct node_key *key)
{
    return &key->id;
}

void node_key_sign(const struct node_key *key, const void *message, size_t len,
                   uint8_t signature[static SIGNATURE_LEN])
{
    ed25519_sha512_sign(key->public_key, key->seed, len, message, signature);
    wipe_stack();
}
