/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a JSON object that somebody else made: what is missing or of another type reads as nothing. */
#include "cli/shared/json_read.h"

const char *json_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

int64_t json_count_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

double json_real_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

bool json_flag_of(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}
