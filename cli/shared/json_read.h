/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a JSON object that somebody else made: what is missing or of another type reads as nothing. */
#ifndef CLI_JSON_READ_H
#define CLI_JSON_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

const char *json_text_of(const json_t *object, const char *key); /* lent by the object; "" */
int64_t json_count_of(const json_t *object, const char *key);    /* 0 */
double json_real_of(const json_t *object, const char *key);      /* 0; whole numbers count */
bool json_flag_of(const json_t *object, const char *key);        /* false */

#endif
