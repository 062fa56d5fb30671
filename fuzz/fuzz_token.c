/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is taken for a secret must give a token that means the same; no text may do harm, or come back
 * in an error. */
#include <stdlib.h>
#include <string.h>

#include "security/secret.h"

#define TEXT_MAX 4096
#define TELLS    24 /* so many characters of the text in an error would tell something */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_error(const struct error *error, const char *text)
{
    char piece[TELLS + 1] = "";

    if (error->status != HEARTH_INVALID || strncmp(error->text, "input: ", 7) != 0)
        abort();
    for (size_t i = 0; strlen(text) >= TELLS && i <= strlen(text) - TELLS; i += TELLS) {
        memcpy(piece, text + i, TELLS);
        if (strstr(error->text, piece))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct secret *secret = NULL, *again = NULL;
    char text[TEXT_MAX + 1], token[SECRET_TOKEN_MAX];
    struct error error;

    if (len > TEXT_MAX)
        return 0;
    memcpy(text, bytes, len);
    text[len] = '\0';
    error_clear(&error);
    if (secret_parse(text, "input", &secret, &error)) {
        if (secret)
            abort();
        check_error(&error, text);
        return 0;
    }
    secret_token(secret, token);
    if (secret_parse(token, "token", &again, &error))
        abort();
    if (memcmp(secret_bytes(secret), secret_bytes(again), SECRET_LEN) != 0 ||
        strcmp(secret_name(secret), secret_name(again)) != 0)
        abort();
    secret_close(secret);
    secret_close(again);
    return 0;
}
