/* SPDX-License-Identifier: Apache-2.0 */
/* The line of a key file, to text and back. */
#include "security/key_line.h"

#include <string.h>

#include <nettle/sha3.h>

#include "security/base32.h"
#include "security/vault.h"

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
