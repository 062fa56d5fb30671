/* SPDX-License-Identifier: Apache-2.0 */
/* Letters of the launcher, in pieces of any size: they come out as they stand in the bytes, whatever those
 * are, and what was taken and wiped is nowhere in the buffer. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/post.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define HEAD      4
#define PIECE_MAX 4096 /* a pipe always takes as much */
#define LOOKS_MAX 4    /* at the whole buffer, which is slow */

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* All letters that are whole in bytes[*at..end). false: what stands there cannot be one. */
static bool take_letters(struct post *post, const uint8_t *bytes, size_t *at, size_t end)
{
    struct letter letter;
    int more;
    while ((more = post_next(post, &letter)) == 1) {
        const uint8_t *head = bytes + *at;
        must(end - *at >= HEAD && letter.kind == head[0] && letter.len <= end - *at - HEAD);
        must(letter.len == ((size_t)head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16));
        must(letter.len == 0 || memcmp(letter.content, head + HEAD, letter.len) == 0);
        *at += HEAD + letter.len;
    }
    return more == 0;
}

static void look_for_traces(struct post *post)
{
    post_wipe(post);
    for (size_t i = 0; i < post->at; i++)
        must(post->data[i] == 0);
    for (size_t i = post->len; i < post->cap; i++)
        must(post->data[i] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct post post;
    int ends[2], looks = 0;
    size_t at = 0, sent = 0, piece = len > 0 ? 1 + (size_t)bytes[0] * 16 % PIECE_MAX : 1;
    if (!pipe_open(ends))
        return 0;
    post_init(&post, ends[0]);
    must(post_read(&post) == 0);
    while (sent < len) {
        size_t part = len - sent < piece ? len - sent : piece;
        must(write(ends[1], bytes + sent, part) == (ssize_t)part && post_read(&post) == 1);
        sent += part;
        if (!take_letters(&post, bytes, &at, sent))
            break;
        must(post_waiting(&post) == sent - at);
        if (at > 0 && looks++ < LOOKS_MAX)
            look_for_traces(&post);
    }
    close(ends[1]);
    post_close(&post);
    return 0;
}
