/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a packet, one behind the other: an id that is to be given up is found behind all the others. */

#if !defined(HEARTH_QUIC)

int main(void)
{
    return 77;
}

#else

#include "support/suite.h"
#include "transport/quic_engine.h"

#define FRAMES_MAX 128

/* One whole frame of each kind, with numbers of all lengths. */
static const struct {
    uint8_t len, bytes[32];
} others[] = {
    {1, {0x00}},
    {1, {0x01}},
    {9, {0x02, 0x18, 0x40, 0x18, 1, 0, 0x18, 0x18, 0x00}}, /* and a padding */
    {8, {0x03, 9, 0x18, 0, 3, 0x18, 0x18, 0x18}},
    {4, {0x04, 0, 0x18, 1}},
    {3, {0x05, 0, 0x18}},
    {5, {0x06, 0, 2, 0x18, 0x18}},
    {4, {0x07, 2, 0x18, 0x18}},
    {4, {0x0a, 0, 1, 0x18}},
    {5, {0x0f, 0, 0x18, 1, 0x18}},
    {4, {0x4a, 0, 1, 0x18}}, /* no type that there is, but taken for a stream */
    {5, {0x10, 0x80, 0, 0, 0x18}},
    {10, {0x11, 0x18, 0xc0, 0, 0, 0, 0, 0, 0, 0x18}},
    {2, {0x12, 0x18}},
    {2, {0x13, 0x18}},
    {2, {0x14, 0x18}},
    {3, {0x15, 0x18, 0x18}},
    {2, {0x16, 0x18}},
    {2, {0x17, 0x18}},
    {21, {0x18, 1, 0, 1, 0x18}},
    {2, {0x19, 0x18}},
    {9, {0x1a, 0x18, 0x18, 0x18}},
    {9, {0x1b, 0x18, 0x18, 0x18}},
    {6, {0x1c, 0x18, 0x18, 2, 0x18, 0x18}},
    {5, {0x1d, 0x18, 2, 0x18, 0x18}},
    {1, {0x1e}},
};
#define OTHERS     (sizeof others / sizeof *others)

static const uint8_t retiring[] = {0x18, 0x40, 2, 0x80, 0, 0, 1, 1, 7, 0, 0, 0, 0,
                                   0,    0,    0, 0,    0, 0, 0, 0, 0, 0, 0, 0};

TEST(found_behind_every_other)
{
    uint8_t frames[FRAMES_MAX];
    for (size_t i = 0; i < OTHERS; i++)
        for (size_t k = 0; k < OTHERS; k++) {
            size_t len = others[i].len;
            memcpy(frames, others[i].bytes, len);
            memcpy(frames + len, others[k].bytes, others[k].len);
            len += others[k].len;
            assert_false(quic_frames_retire(frames, len));
            memcpy(frames + len, retiring, sizeof retiring);
            if (!quic_frames_retire(frames, len + sizeof retiring))
                fail_msg("it is not found behind 0x%02x and 0x%02x", others[i].bytes[0], others[k].bytes[0]);
        }
}

TEST(not_found_where_nobody_reads)
{
    static const uint8_t ends[][3] = {
        {0x08, 0, 0},       /* a stream to the end of the packet */
        {0x20, 0, 0},       /* no frame */
        {0x06, 0, 0x3f},    /* more bytes than there are */
        {0x02, 0, 0},       /* and more numbers */
        {0x10, 0xff, 0xff}, /* and a longer one */
    };
    uint8_t frames[FRAMES_MAX];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        memcpy(frames, ends[i], sizeof ends[i]);
        memcpy(frames + sizeof ends[i], retiring, sizeof retiring);
        size_t len = sizeof ends[i] + (i < 2 ? sizeof retiring : 0);
        assert_false(quic_frames_retire(frames, len));
    }
    assert_false(quic_frames_retire(frames, 0));
}

/* In memory of just that length: nothing behind it is read. */
TEST(cut_anywhere)
{
    for (size_t i = 0; i < OTHERS; i++)
        for (size_t len = 1; len <= others[i].len; len++) {
            uint8_t *frames = malloc(len);
            assert_non_null(frames);
            memcpy(frames, others[i].bytes, len);
            assert_false(quic_frames_retire(frames, len));
            free(frames);
        }
}

#endif
