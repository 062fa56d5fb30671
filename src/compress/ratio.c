/* SPDX-License-Identifier: Apache-2.0 */
/* Decimal numbers in (0, 1] and doubles, both ways, by integers alone: strtod and printf know locales. */
#include "compress/ratio.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

#define DIGITS_SURE  17 /* every double is told from its neighbours by so many */
#define PLACES_MAX   38 /* 10^38 is below 2^127 */
#define PLACES_EXACT 22 /* 10^22 is a double */
#define PLACES_PLAIN 9  /* more are written with an exponent */
#define EXPONENT_MAX 9999

/* digits / 10^places; digits has no zero at its end unless places is 0. */
struct decimal {
    uint64_t digits;
    int places;
};

static u128 power_of_ten(int exponent)
{
    u128 power = 1;

    while (exponent-- > 0)
        power *= 10;
    return power;
}

/* The double nearest to d, ties to even. 0 < d < 1: a long division in base two, one bit of the quotient at a
 * time, until 53 of them count; what then remains decides the rounding. */
static double decimal_value(const struct decimal *d)
{
    u128 divisor = power_of_ten(d->places), rest = d->digits;
    uint64_t bits = 0;
    int exponent = 0;

    if (rest == divisor)
        return 1;
    assert(rest > 0 && rest < divisor);
    while (bits < UINT64_C(1) << 52) {
        rest *= 2;
        bits = bits * 2 + (rest >= divisor);
        rest -= rest >= divisor ? divisor : 0;
        exponent--;
    }
    rest *= 2;
    if (rest > divisor || (rest == divisor && bits % 2 == 1))
        bits++;
    return ldexp((double)bits, exponent);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Takes the digits at *at; `places` counts those after the point. False: more than 18 of them. */
static bool take_digits(const char **at, const char *end, struct decimal *d, bool after_point)
{
    for (; *at < end && is_digit(**at); (*at)++) {
        if (d->digits >= UINT64_C(100000000000000000))
            return false;
        d->digits = d->digits * 10 + (uint64_t)(**at - '0');
        d->places += after_point;
    }
    return true;
}

/* "e-3" and so on at *at: moves the point. */
static bool take_exponent(const char **at, const char *end, struct decimal *d)
{
    int exponent = 0;
    bool minus = false;

    (*at)++;
    if (*at < end && (**at == '-' || **at == '+'))
        minus = *(*at)++ == '-';
    if (*at == end)
        return false;
    for (; *at < end && is_digit(**at); (*at)++)
        if (exponent < EXPONENT_MAX)
            exponent = exponent * 10 + (**at - '0');
    d->places += minus ? exponent : -exponent;
    return true;
}

/* So that the digits have no zeros at the end, and places is 0 or more. False: beyond 1, or too small. */
static bool decimal_normal(struct decimal *d)
{
    if (d->digits == 0)
        return false;
    while (d->digits % 10 == 0 && d->places > 0) {
        d->digits /= 10;
        d->places--;
    }
    if (d->places < 0 || d->places > PLACES_MAX)
        return false;
    return d->digits <= power_of_ten(d->places);
}

static bool decimal_parse(const char *text, size_t len, struct decimal *d)
{
    const char *at = text, *end = text + len;

    *d = (struct decimal){0};
    if (at == end || !is_digit(*at) || !take_digits(&at, end, d, false))
        return false;
    if (at < end && *at == '.') {
        const char *first = ++at;
        if (!take_digits(&at, end, d, true) || at == first)
            return false;
    }
    if (at < end && *at == 'e' && !take_exponent(&at, end, d))
        return false;
    return at == end && decimal_normal(d);
}

bool ratio_parse(const char *text, size_t len, double *ratio)
{
    struct decimal d;

    if (!decimal_parse(text, len, &d))
        return false;
    double value = decimal_value(&d);
    if (value < RATIO_MIN)
        return false;
    *ratio = value;
    return true;
}

/* `count` digits of a ratio, correctly rounded: by printf, whatever its locale takes for a point. */
static struct decimal decimal_rounded(double ratio, int count)
{
    struct decimal d = {0};
    char text[64];
    int exponent = 0;

    snprintf(text, sizeof text, "%.*e", count - 1, ratio); /* "1.234e-05" */
    const char *mark = strchr(text, 'e');
    for (const char *at = text; at < mark; at++)
        if (is_digit(*at))
            d.digits = d.digits * 10 + (uint64_t)(*at - '0');
    for (const char *at = mark + 1; *at; at++)
        if (is_digit(*at))
            exponent = exponent * 10 + (*at - '0');
    d.places = count - 1 + exponent; /* the ratio is not above 1, so the sign is a minus */
    return d;
}

/* The shortest decimal that is nearest to this double. Most are found at once: up to 15 digits over a power
 * of ten that is a double, one division gives the double nearest to their quotient. */
static struct decimal decimal_of(double ratio)
{
    struct decimal d = {0};
    double power = 1;

    assert(ratio >= RATIO_MIN && ratio <= 1);
    for (d.places = 0; d.places <= PLACES_EXACT && ratio * power < 1e15; d.places++, power *= 10) {
        d.digits = (uint64_t)(ratio * power + 0.5);
        if ((double)d.digits / power == ratio)
            return d;
    }
    int count = 0;
    do
        d = decimal_rounded(ratio, ++count);
    while (count < DIGITS_SURE && !(decimal_normal(&d) && decimal_value(&d) == ratio));
    return d;
}

void ratio_text(double ratio, char text[RATIO_TEXT_MAX])
{
    struct decimal d = decimal_of(ratio);
    unsigned long long digits = d.digits;

    if (d.places == 0)
        snprintf(text, RATIO_TEXT_MAX, "%llu", digits);
    else if (d.places <= PLACES_PLAIN || (d.places <= 2 * PLACES_PLAIN && d.digits >= 1000000000))
        snprintf(text, RATIO_TEXT_MAX, "0.%0*llu", d.places, digits);
    else
        snprintf(text, RATIO_TEXT_MAX, "%llue-%d", digits, d.places);
}

size_t ratio_of(double ratio, size_t count)
{
    struct decimal d = decimal_of(ratio);
    u128 divisor = power_of_ten(d.places);

    return (size_t)(((u128)count * d.digits + (divisor - 1)) / divisor);
}
