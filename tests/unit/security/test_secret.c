/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster's secret: what is derived from it is what docs/wire.md says, and a token with an error in it is
 * never taken. */
#include <ctype.h>

#include "security/secret.h"
#include "support/suite.h"

#define CODE    "000g40r40m30e209185gr38e1w8124gk2gahc5rr34d1p70x3rf"
#define TOKEN   "hearth1-hearth-" CODE "n1hdrv8"
#define LAB     "hearth1-Lab-2_b.c-" CODE "qd1j1h8"
#define HEX     "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define NAME_32 "abcdefghijklmnopqrstuvwxyz-_.012"

static struct error error;

static const uint8_t counted[SECRET_LEN] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                            16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static struct secret *from_bytes(const char *name)
{
    struct secret *secret = NULL;
    assert_int_equal(secret_from_bytes(counted, name, &secret, &error), HEARTH_OK);
    return secret;
}

static struct secret *parsed(const char *text)
{
    struct secret *secret = NULL;
    assert_int_equal(secret_parse(text, "HEARTH_SECRET", &secret, &error), HEARTH_OK);
    return secret;
}

static void assert_refused(const char *text, const char *why)
{
    struct secret *secret = NULL;

    assert_int_equal(secret_parse(text, "HEARTH_SECRET", &secret, &error), HEARTH_INVALID);
    assert_null(secret);
    assert_non_null(strstr(error.text, "HEARTH_SECRET: "));
    if (!strstr(error.text, why))
        fail_msg("no \"%s\" in: %s", why, error.text);
    assert_null(strstr(error.text, CODE)); /* nobody finds a secret in a log */
    assert_null(strstr(error.text, "0001020304"));
}

/* ---- what is derived ---- */

TEST(derived_values_are_those_of_the_book)
{
    static const char keys[SECRET_KEYS][SECRET_DERIVED_LEN + 1] = {
        [SECRET_KNOCK] = "\xf3\x59\x1b\x4a\xf0\x7a\xa9\x4f\xd0\x4a\x05\x13\x67\x85\xfb\xb9"
                         "\x22\x0d\x77\x98\xf7\xf5\x99\xb1\x15\xba\xb5\xfe\x80\xcc\xe5\x02",
        [SECRET_DIALLER] = "\xa9\xb7\xe4\x36\x06\x40\x50\xef\x4d\x42\x65\x21\x71\x69\xe6\x92"
                           "\xf0\x55\x71\x68\xf4\xfd\x4b\xf3\xa6\x3d\x17\x83\x56\xb4\x9f\x0b",
        [SECRET_LISTENER] = "\xd1\xe4\x4a\x36\xf7\xda\x39\x22\x73\x2e\xeb\xd2\xe5\x47\x1e\x59"
                            "\x49\x21\x95\x06\x3a\x5e\x70\xad\xd4\x06\x8f\xd8\x2a\x56\xc0\xe3",
    };
    struct secret *secret = from_bytes("other"); /* the name changes nothing */
    char text[NAMESPACE_TEXT];

    for (int i = 0; i < SECRET_KEYS; i++)
        assert_memory_equal(secret_key(secret, (enum secret_key)i), keys[i], SECRET_DERIVED_LEN);
    namespace_text(secret_namespace(secret), text);
    assert_string_equal(text, "954d69b7e871bae8bb0f5c55a27411c2");
    assert_memory_equal(secret_bytes(secret), counted, SECRET_LEN);
    secret_close(secret);
}

TEST(drawn_secrets_differ_in_everything)
{
    struct secret *a = NULL, *b = NULL;

    assert_int_equal(secret_draw(NULL, &a, &error), HEARTH_OK);
    assert_int_equal(secret_draw("lab", &b, &error), HEARTH_OK);
    assert_string_equal(secret_name(a), "hearth");
    assert_string_equal(secret_name(b), "lab");
    assert_memory_not_equal(secret_bytes(a), secret_bytes(b), SECRET_LEN);
    assert_memory_not_equal(secret_namespace(a), secret_namespace(b), NAMESPACE_LEN);
    for (int i = 0; i < SECRET_KEYS; i++)
        assert_memory_not_equal(secret_key(a, (enum secret_key)i), secret_key(b, (enum secret_key)i),
                                SECRET_DERIVED_LEN);
    secret_close(a);
    secret_close(b);
    secret_close(NULL);
}

TEST(names_are_checked)
{
    static const char *const bad[] = {"", "a b", "a/b", "\xc3\xa4", "a$b", "a\nb", NAME_32 "x"};
    struct secret *secret = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(secret_draw(bad[i], &secret, &error), HEARTH_INVALID);
        assert_non_null(strstr(error.text, "letters, digits"));
    }
    assert_null(secret);
    assert_int_equal(secret_draw(NAME_32, &secret, &error), HEARTH_OK);
    assert_string_equal(secret_name(secret), NAME_32);
    secret_close(secret);
}

/* ---- tokens ---- */

TEST(tokens_are_those_of_the_book)
{
    struct secret *secret = from_bytes(NULL), *lab = from_bytes("Lab-2_b.c");
    char text[SECRET_TOKEN_MAX];

    secret_token(secret, text);
    assert_string_equal(text, TOKEN);
    secret_token(lab, text);
    assert_string_equal(text, LAB);
    secret_close(secret);
    secret_close(lab);
}

TEST(tokens_come_back)
{
    static const char *const names[] = {NULL, "a", "-", "a-b-", "1-2", NAME_32};
    struct secret *secret = NULL, *again;
    char text[SECRET_TOKEN_MAX];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(secret_draw(names[i], &secret, &error), HEARTH_OK);
        secret_token(secret, text);
        again = parsed(text);
        assert_memory_equal(secret_bytes(again), secret_bytes(secret), SECRET_LEN);
        assert_string_equal(secret_name(again), secret_name(secret));
        for (int k = 0; k < SECRET_KEYS; k++)
            assert_memory_equal(secret_key(again, (enum secret_key)k), secret_key(secret, (enum secret_key)k),
                                SECRET_DERIVED_LEN);
        secret_close(again);
        secret_close(secret);
    }
}

TEST(spelling_that_people_mix_up_is_taken)
{
    char text[SECRET_TOKEN_MAX];
    static const char *const same[] = {
        "  " TOKEN " \r\n\t",
        "HEARTH1-HEARTH-000G40R40M30E209185GR38E1W8124GK2GAHC5RR34D1P70X3RFN1HDRV8",
        "hearth1-hearth-oO0g40r40m30e2o9i85gr38eLw8l24gk2gahc5rr34dIp70x3rfn1hdrv8",
        HEX,
        "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F\n",
    };

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        struct secret *secret = parsed(same[i]);
        assert_memory_equal(secret_bytes(secret), counted, SECRET_LEN);
        secret_close(secret);
    }
    struct secret *secret = parsed("HEARTH1-LAB-2_B.C-" CODE "QD1J1H8");
    assert_string_equal(secret_name(secret), "LAB-2_B.C");
    secret_token(secret, text);
    assert_string_equal(text, "hearth1-LAB-2_B.C-" CODE "qd1j1h8");
    secret_close(secret);
}

/* Every single wrong character, lost character and swapped pair. */
TEST(every_typing_error_is_noticed)
{
    static const char messages[] = "0123456789abcdefghjkmnpqrstvwxyz-_.";
    const size_t len = strlen(LAB), name = strlen("hearth1-");
    char text[SECRET_TOKEN_MAX];
    struct secret *secret = NULL;

    for (size_t i = name; i < len; i++) {
        for (const char *c = messages; *c; c++) {
            snprintf(text, sizeof text, "%s", LAB);
            if (tolower(text[i]) == *c)
                continue;
            text[i] = *c;
            assert_int_equal(secret_parse(text, "it", &secret, &error), HEARTH_INVALID);
        }
        snprintf(text, sizeof text, "%s", LAB);
        memmove(text + i, text + i + 1, len - i);
        assert_int_equal(secret_parse(text, "it", &secret, &error), HEARTH_INVALID);
        snprintf(text, sizeof text, "%s", LAB);
        if (i + 1 < len && text[i] != text[i + 1]) {
            text[i] = LAB[i + 1];
            text[i + 1] = LAB[i];
            assert_int_equal(secret_parse(text, "it", &secret, &error), HEARTH_INVALID);
        }
    }
    assert_null(secret);
}

TEST(errors_name_the_source_and_the_fix)
{
    char longer[4000];

    assert_refused("", "empty");
    assert_refused(" \n", "empty");
    assert_refused("sesame", "no join token");
    assert_refused("hearth2-hearth-" CODE "n1hdrv8", "no join token");
    assert_refused(HEX "0", "no join token");
    assert_refused("g00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "no join token");
    assert_refused("hearth1-hearth-" CODE "n1hdrw8", "typing error");
    assert_refused("hearth1-heart-" CODE "n1hdrv8", "typing error");
    assert_refused("hearth1-hearth-" CODE "n1hdrv", "cut short");
    assert_refused("hearth1-hearth-" CODE "n1hdrv88", "cut short");
    assert_refused("hearth1-" CODE "n1hdrv8", "cut short");
    assert_refused("hearth1--" CODE "n1hdrv8", "cut short");
    assert_refused("hearth1-", "cut short");
    assert_refused("hearth1-hearth-" CODE "n1hdru8", "does not belong");
    assert_refused("hearth1-hea$th-" CODE "n1hdrv8", "does not belong");
    assert_refused("hearth1-" NAME_32 "x-" CODE "n1hdrv8", "more than 32");
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_refused(longer, "no join token");
}
