/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever gets a core dump finds no key in it: not while keys are used, and not after they were closed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

#include <nettle/sha2.h>

#include "dumped.h"
#include "ends.h"
#include "folder.h"
#include "security/node_key.h"
#include "security/secret.h"
#include "security/vault.h"
#include "support/suite.h"

#if !defined(__has_feature)
#define __has_feature(name) 0 /* clang has it, gcc the names */
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||     \
    __has_feature(thread_sanitizer)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

#if defined(__linux__) && !defined(HEARTH_POSIX)
static const bool has_dump_flags = true;
#else
static const bool has_dump_flags = false;
#endif

enum { PATTERNS = 6 + 3 * SECRET_KEYS };

static struct error error;
static struct pattern patterns[PATTERNS]; /* turned over: not what is looked for */

/* What Ed25519 computes with: the scalar, and what goes before each message. Who has them can sign. */
static void expand(const uint8_t *seed, uint8_t expanded[static SHA512_DIGEST_SIZE])
{
    struct sha512_ctx hash;

    sha512_init(&hash);
    sha512_update(&hash, KEY_SEED_LEN, seed);
    sha512_digest(&hash, SHA512_DIGEST_SIZE, expanded);
}

/* In a child, whose memory is gone afterwards: makes the files and tells what is to be looked for. */
static int make_files(void *arg)
{
    static const char *const names[SECRET_KEYS] = {"knock key", "dialler's key", "listener's key"};
    struct pattern found[PATTERNS];
    struct secret *secret = NULL;
    struct node_key *key = NULL;
    char token[SECRET_TOKEN_MAX], line[KEY_LINE_LEN];
    uint8_t seed[KEY_SEED_LEN], expanded[SHA512_DIGEST_SIZE];
    int fd = *(int *)arg;

    memset(found, 0, sizeof found);
    if (secret_draw("lab", &secret, &error) || secret_store(secret, folder_path("secret"), false, &error) ||
        node_key_load(folder_path("node.key"), &key, &error))
        return 1;
    secret_token(secret, token);
    if (file_get(folder_path("node.key"), line, sizeof line) != sizeof line ||
        key_line_parse(line, sizeof line, seed))
        return 2;
    pattern_set(&found[0], "secret", secret_bytes(secret), SECRET_LEN);
    pattern_set(&found[1], "token", strrchr(token, '-') + 1, 32);
    pattern_set(&found[2], "seed", seed, sizeof seed);
    pattern_set(&found[3], "digits of the seed", line + 18, 2 * sizeof seed);
    expand(seed, expanded);
    pattern_set(&found[4], "scalar of the key", expanded + 16, 15); /* its middle, which no list overwrites */
    pattern_set(&found[5], "prefix of the key", expanded + 32, 32);
    for (int i = 0; i < SECRET_KEYS; i++) {
        const uint8_t *derived = secret_key(secret, (enum secret_key)i);
        uint8_t pad[2][SECRET_DERIVED_LEN]; /* what HMAC makes of a key is as good as the key */
        for (int k = 0; k < SECRET_DERIVED_LEN; k++) {
            pad[0][k] = derived[k] ^ 0x36;
            pad[1][k] = derived[k] ^ 0x5c;
        }
        pattern_set(&found[6 + i], names[i], derived, SECRET_DERIVED_LEN);
        pattern_set(&found[6 + SECRET_KEYS + i], names[i], pad[0], SECRET_DERIVED_LEN);
        pattern_set(&found[6 + 2 * SECRET_KEYS + i], names[i], pad[1], SECRET_DERIVED_LEN);
    }
    return write(fd, found, sizeof found) == (ssize_t)sizeof found ? 0 : 3;
}

static void learn_patterns(void)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(child_run(make_files, &ends[1]), 0);
    assert_int_equal(read(ends[0], patterns, sizeof patterns), sizeof patterns);
    close(ends[0]);
    close(ends[1]);
}

static void skip_where_nothing_can_be_seen(void)
{
    if (sanitized)
        print_message("skipped: a sanitizer has memory without end to look through\n");
    else if (!has_dump_flags)
        print_message("skipped: the posix build cannot keep memory out of core dumps\n");
    else
        return;
    skip();
}

static void assert_no_traces(const char *when)
{
    for (int i = 0; i < PATTERNS; i++) {
        int count = dumped_count(&patterns[i]);
        if (count != 0)
            fail_msg("%s: the %s stands %d times in memory that a core dump holds", when, patterns[i].name,
                     count);
    }
}

TEST(a_trace_would_be_found)
{
    uint8_t bytes[SECRET_LEN];

    skip_where_nothing_can_be_seen();
    memset(bytes, 0x5c, sizeof bytes);
    bytes[7] = 0x17;
    pattern_set(&patterns[0], "copy on the stack", bytes, sizeof bytes);
    assert_true(dumped_count(&patterns[0]) >= 1);
    wipe(bytes, sizeof bytes);
    assert_int_equal(dumped_count(&patterns[0]), 0);
}

TEST_WITH(no_dump_holds_a_key, folder_make, folder_remove)
{
    struct secret *secret = NULL, *shared = NULL;
    struct node_key *key = NULL;
    uint8_t signature[SIGNATURE_LEN];
    bool missing;
    int fd;

    skip_where_nothing_can_be_seen();
    learn_patterns();

    assert_int_equal(secret_load(folder_path("secret"), &secret, &missing, &error), HEARTH_OK);
    fd = open(folder_path("secret"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(secret_read_fd(fd, &shared, &error), HEARTH_OK);
    close(fd);
    assert_no_traces("while the secret is used");
    assert_int_equal(node_key_load(folder_path("node.key"), &key, &error), HEARTH_OK);
    assert_no_traces("while the key is used");
    node_key_sign(key, "message", 7, signature);
    assert_no_traces("after a signature");
    assert_int_equal(secret_store(secret, folder_path("copy"), false, &error), HEARTH_OK);
    assert_no_traces("after storing the secret");
    node_key_close(key);
    secret_close(secret);
    secret_close(shared);
    assert_no_traces("after all was closed");
}

static struct credentials *node(struct node_key *key, uint64_t instance)
{
    struct credentials_setup setup = {.heap = &ends_heap, .key = key, .instance = instance};
    struct credentials *credentials = NULL;
    bool missing;

    assert_int_equal(secret_load(folder_path("secret"), &setup.secret, &missing, &error), HEARTH_OK);
    assert_int_equal(credentials_open(&setup, &credentials, &error), HEARTH_OK);
    return credentials;
}

/* What TLS does with the key, and what knocks and proofs do with the secret. */
TEST_WITH(no_dump_holds_a_key_of_a_handshake, folder_make, folder_remove)
{
    struct node_key *key = NULL, *other = NULL;
    struct end dialler, listener;

    skip_where_nothing_can_be_seen();
    heap_init(&ends_heap, 0);
    learn_patterns();
    assert_int_equal(node_key_load(folder_path("node.key"), &key, &error), HEARTH_OK);
    assert_int_equal(node_key_fresh(&other, &error), HEARTH_OK);
    struct credentials *a = node(key, 1), *b = node(other, 2);
    ends_join(&dialler, &listener, a, b);
    assert_no_traces("after a handshake");
    end_close(&dialler);
    end_close(&listener);
    ends_join(&dialler, &listener, b, a);
    assert_no_traces("after a handshake the other way round");
    end_close(&dialler);
    end_close(&listener);
    credentials_close(a);
    credentials_close(b);
    assert_no_traces("after nodes were closed");
}

/* Puts other characters where the checksum ends. */
static void spoil_end(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    assert_true(lseek(fd, -3, SEEK_END) > 0);
    assert_int_equal(write(fd, "zz", 2), 2);
    close(fd);
}

TEST_WITH(no_dump_holds_what_was_refused, folder_make, folder_remove)
{
    struct secret *secret = NULL;
    struct node_key *key = NULL;
    bool missing;

    skip_where_nothing_can_be_seen();
    learn_patterns();
    spoil_end(folder_path("secret"));
    spoil_end(folder_path("node.key"));
    assert_int_equal(secret_load(folder_path("secret"), &secret, &missing, &error), HEARTH_INVALID);
    assert_int_equal(node_key_load(folder_path("node.key"), &key, &error), HEARTH_INVALID);
    assert_no_traces("after files were refused");
}
