/* SPDX-License-Identifier: Apache-2.0 */
/* One line, one call of the sink; every message has an id that never changes. */
#pragma once

#include "core/types.h"

struct log {
    hearth_log_fn *sink; /* NULL = silent */
    void *arg;
    enum hearth_log_level level;
};

void log_write(const struct log *log, enum hearth_log_level level, const char *id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
