/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them, and colour where there is a terminal for it. */
#include "cli/shared/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Three digits that mean something, in the largest unit that leaves one before the point: 1.75, 12.3, 123. */
static struct text stepped(double value, double step, const char *const *units, size_t count)
{
    struct text t;
    size_t i = 0;
    for (; i + 1 < count && value >= step; i++)
        value /= step;
    int decimals = value == floor(value) ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(t.s, sizeof t.s, "%.*f %s", decimals, value, units[i]);
    return t;
}

struct text text_bytes(double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return stepped(bytes, 1024, units, sizeof units / sizeof *units);
}

struct text text_time(double seconds)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    if (!isfinite(seconds))
        return (struct text){"-"};
    return stepped(seconds * 1e9, 1000, units, sizeof units / sizeof *units);
}

struct text text_rate(double bytes_per_s)
{
    static const char *const units[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
    return stepped(bytes_per_s * 8, 1000, units, sizeof units / sizeof *units);
}

struct text text_speed(double bytes_per_s)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    return stepped(bytes_per_s, 1000, units, sizeof units / sizeof *units);
}

struct text text_count(uint64_t count)
{
    char digits[24];
    struct text t;
    size_t len = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)count), at = 0;
    for (size_t i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            t.s[at++] = ',';
        t.s[at++] = digits[i];
    }
    t.s[at] = 0;
    return t;
}

struct text text_ratio(double ratio)
{
    struct text t;
    if (ratio >= 1000)
        return text_count((uint64_t)ratio);
    snprintf(t.s, sizeof t.s, "%.*f", ratio < 9.995 ? 2 : ratio < 99.95 ? 1 : 0, ratio);
    return t;
}

struct text text_share(double share)
{
    struct text t;
    snprintf(t.s, sizeof t.s, "%.1f %%", share * 100);
    return t;
}

const char *paint(FILE *file, enum paint what)
{
    static const char *const codes[] = {"\033[0m", "\033[1m", "\033[2m", "\033[32m", "\033[31m"};
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    if (!isatty(fileno(file)) || (no_color && *no_color) || !term || strcmp(term, "dumb") == 0)
        return "";
    return codes[what];
}

void print_title(enum paint what, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("\n%s", paint(stdout, what));
    vprintf(format, args);
    printf("%s\n", paint(stdout, PAINT_NONE));
    va_end(args);
}

struct text text_exact(bool good)
{
    struct text t = {"yes"};
    if (!good)
        snprintf(t.s, sizeof t.s, "%sNO%s", paint(stdout, PAINT_BAD), paint(stdout, PAINT_NONE));
    return t;
}
