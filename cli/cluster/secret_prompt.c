/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a secret from standard input: from a terminal with a question and unseen, else its first line. */
#include "cli/cluster/secret_prompt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/shared/signals.h"

/* Nothing is buffered beyond `text`: what a library kept could not be wiped. `heard` < 0: nobody listens to
 * signals. Gives the signal that came, 0: none. */
static int read_line(char *text, int heard, enum ask *result)
{
    size_t len = 0;
    *result = ASK_FAILED;
    for (;;) {
        struct pollfd polls[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = heard, .events = POLLIN}};
        int ready = poll(polls, 2, -1), number = heard >= 0 ? signals_next() : 0;
        if (number)
            return number;
        if (ready < 0 && errno != EINTR)
            return 0;
        if (ready <= 0 || !polls[0].revents)
            continue;
        ssize_t got = read(STDIN_FILENO, text + len, ASK_MAX - 1 - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return 0;
        len += (size_t)got;
        text[len] = 0;
        text[strcspn(text, "\n")] = 0;
        bool ended = got == 0 || strlen(text) < len;
        if (ended || len == ASK_MAX - 1) {
            *result = !ended ? ASK_TOO_LONG : text[strspn(text, " \t\r")] ? ASK_GOOD : ASK_NOTHING;
            return 0;
        }
    }
}

enum ask ask_hidden(const char *question, char text[static ASK_MAX])
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    struct termios before, unseen;
    enum ask result;
    memset(text, 0, ASK_MAX);
    if (tcgetattr(STDIN_FILENO, &before) != 0) {
        read_line(text, -1, &result);
        return result;
    }
    int heard = signals_open(ends, sizeof ends / sizeof *ends), number = 0;
    unseen = before;
    unseen.c_lflag &= ~(tcflag_t)ECHO;
    fprintf(stderr, "%s", question);
    if (heard >= 0 && tcsetattr(STDIN_FILENO, TCSAFLUSH, &unseen) == 0)
        number = read_line(text, heard, &result);
    else
        result = ASK_FAILED;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    fputc('\n', stderr);
    signals_reset();
    if (number) {
        memset(text, 0, ASK_MAX);
        raise(number);
    }
    return result;
}
