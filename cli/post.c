/* SPDX-License-Identifier: Apache-2.0 */
/* Letters between the launcher and the keepers of its ranks, over pipes or ssh. */
#include "cli/post.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "security/vault.h"

#define HEAD     4
#define READ_MAX 65536

static const int numbers[PASS_COUNT] = {
    [PASS_INT] = SIGINT,   [PASS_TERM] = SIGTERM, [PASS_HUP] = SIGHUP,   [PASS_USR1] = SIGUSR1,
    [PASS_USR2] = SIGUSR2, [PASS_TSTP] = SIGTSTP, [PASS_CONT] = SIGCONT, [PASS_KILL] = SIGKILL};

int pass_number(enum letter_signal place)
{
    return numbers[place];
}

enum letter_signal pass_place(int number)
{
    int place = 0;
    while (place < PASS_COUNT && numbers[place] != number)
        place++;
    return (enum letter_signal)place;
}

void post_init(struct post *post, int fd)
{
    *post = (struct post){.fd = fd};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void drop(struct post *post)
{
    if (post->data)
        wipe(post->data, post->cap);
    free(post->data);
}

void post_close(struct post *post)
{
    if (post->fd >= 0)
        close(post->fd);
    drop(post);
    *post = (struct post){.fd = -1};
}

size_t post_waiting(const struct post *post)
{
    return post->len - post->at;
}

/* Room for `more` bytes at the end. */
static bool post_grow(struct post *post, size_t more, size_t max)
{
    if (post->at > 0) {
        memmove(post->data, post->data + post->at, post_waiting(post));
        post->len -= post->at;
        post->at = 0;
    }
    if (post->len + more > max)
        return false;
    if (post->len + more <= post->cap)
        return true;
    size_t cap = post->cap ? post->cap : 4096;
    while (cap < post->len + more)
        cap *= 2;
    unsigned char *data = malloc(cap); /* realloc would leave what it had, unwiped */
    if (!data)
        return false;
    if (post->len > 0)
        memcpy(data, post->data, post->len);
    drop(post);
    post->data = data;
    post->cap = cap;
    return true;
}

bool post_add(struct post *post, int kind, const void *content, size_t len)
{
    if (post->fd < 0)
        return true; /* nobody reads it any more, which is noticed elsewhere */
    if (len > LETTER_MAX || !post_grow(post, HEAD + len, POST_QUEUE_MAX))
        return false;
    unsigned char *head = post->data + post->len;
    head[0] = (unsigned char)kind;
    for (int i = 0; i < 3; i++)
        head[1 + i] = (unsigned char)(len >> 8 * i);
    if (len > 0)
        memcpy(head + HEAD, content, len);
    post->len += HEAD + len;
    post->secret = post->secret || kind == LETTER_SECRET;
    post_flush(post);
    return true;
}

void post_wipe(struct post *post)
{
    if (!post->data)
        return;
    wipe(post->data, post->at);
    wipe(post->data + post->len, post->cap - post->len);
}

void post_flush(struct post *post)
{
    while (post->fd >= 0 && post_waiting(post) > 0) {
        ssize_t sent = write(post->fd, post->data + post->at, post_waiting(post));
        if (sent >= 0)
            post->at += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            post_close(post);
    }
    if (post->secret)
        post_wipe(post);
    post->secret = false;
}

int post_read(struct post *post)
{
    if (post->fd < 0 || !post_grow(post, READ_MAX, LETTER_MAX + HEAD + READ_MAX))
        return -1;
    ssize_t got = read(post->fd, post->data + post->len, READ_MAX);
    if (got > 0)
        post->len += (size_t)got;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    return got > 0 ? 1 : -1;
}

int post_next(struct post *post, struct letter *letter)
{
    if (post_waiting(post) < HEAD)
        return 0;
    const unsigned char *head = post->data + post->at;
    size_t len = (size_t)head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16;
    *letter = (struct letter){head[0], head + HEAD, len};
    if (len > LETTER_MAX)
        return -1;
    if (post_waiting(post) < HEAD + len)
        return 0;
    post->at += HEAD + len;
    return 1;
}

bool pipe_open(int ends[2])
{
    if (pipe(ends) != 0)
        return false;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    return true;
}
