/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a test program that hangs, with a word about where; and how long tests are. */
#include "watchdog.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *volatile watched;

static void bark(int number)
{
    static const char words[] = "\nwatchdog: this hangs: ";
    const char *what = watched;
    (void)!write(STDERR_FILENO, words, sizeof words - 1);
    (void)!write(STDERR_FILENO, what, strlen(what));
    (void)!write(STDERR_FILENO, "\n", 1);
    abort();
}

void watchdog(unsigned seconds, const char *what)
{
    watched = what;
    signal(SIGALRM, bark);
    alarm(seconds);
}

static unsigned long number_from(const char *name, unsigned long usual)
{
    const char *text = getenv(name);
    char *end;
    if (!text)
        return usual;
    unsigned long value = strtoul(text, &end, 10);
    return end != text && *end == '\0' && value > 0 ? value : usual;
}

unsigned long repeat_count(unsigned long usual)
{
    return number_from("HEARTH_TEST_REPEAT", usual);
}

unsigned long first_seed(void)
{
    return number_from("HEARTH_TEST_SEED", 1);
}
