/* SPDX-License-Identifier: Apache-2.0 */
/* Formats a line into a bounded buffer and hands it to the sink. */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LOG_TEXT_MAX 1024

void log_write(const struct log *log, enum hearth_log_level level, const char *id, const char *format, ...)
{
    char text[LOG_TEXT_MAX];
    va_list args;

    if (!log->sink || level > log->level)
        return;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len < 0)
        text[0] = '\0';
    else if ((size_t)len >= sizeof text)
        memcpy(text + sizeof text - 4, "...", 4);
    log->sink(log->arg, level, id, text);
}
