/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of frames with a payload: their turns at the data pipes, what leaves through the first pipe, and
 * frames that are taken back. */
#include "fake.h"
#include "support/suite.h"

static char owners[LINK_CLASSES];

static void greet(int pipes)
{
    world_open(pipes);
    link_send_hello(&w->link, "hello", 5);
    world_greet();
    for (int i = 0; i < pipes; i++)
        assert_int_equal(next_out(i, NULL).kind, FRAME_HELLO);
}

static int setup_one(void **state)
{
    greet(1);
    return 0;
}

static int setup_two(void **state)
{
    greet(2);
    return 0;
}

static void queue(enum link_class class, uint32_t lane, uint32_t len, void *copy)
{
    static const uint8_t zeros[4096];
    struct frame frame = {
        .kind = class == LINK_FIRST ? FRAME_MESSAGE : FRAME_DATA, .lane = lane, .length = len};
    link_send_data(&w->link, &(struct link_data){.frame = frame,
                                                 .payload = copy ? copy : zeros,
                                                 .copy = copy,
                                                 .owner = &owners[class],
                                                 .class = class});
}

static void set_room(size_t bytes)
{
    for (int i = 0; i < w->link.pipe_count; i++)
        w->fakes[i].send_room = bytes;
}

/* A frame is on its way through the pipe, so that the next one is chosen later. */
static void keep_busy(int pipes)
{
    set_room(1);
    for (int i = 0; i < pipes; i++)
        queue(LINK_NORMAL, 1000, 8, NULL);
    pump();
}

/* The classes of what has left through the last pipe, in order. */
static void turns(char got[80])
{
    struct frame frame;
    const uint8_t *payload;
    size_t count = 0;
    while (fake_next(&w->fakes[w->link.pipe_count - 1], &frame, &payload))
        if (frame.lane != 1000)
            got[count++] = "fhnmb"[frame.lane];
    got[count] = '\0';
}

TEST_WITH(higher_classes_have_more_turns, setup_two, world_close)
{
    keep_busy(1);
    memset(w->link.turns, 0, sizeof w->link.turns);
    for (int i = 0; i < LINK_DATA_QUEUE; i++)
        for (enum link_class c = LINK_HIGH; c <= LINK_BULK; c++)
            if (link_room(&w->link, c))
                queue(c, c, 4, NULL);
    set_room(SIZE_MAX);
    pump();
    char got[80];
    turns(got);
    assert_int_equal(strlen(got), 4 * LINK_DATA_QUEUE);
    assert_int_equal(strspn(got, "h"), 16);
    assert_int_equal(strspn(got + 16, "n"), 4);
    assert_int_equal(strspn(got + 20, "m"), 4);
    assert_int_equal(strspn(got + 24, "b"), 1);
    assert_int_equal(got[25], 'n'); /* bulk has had its turn: the next round */
}

TEST_WITH(on_one_pipe_all_classes_get_through, setup_one, world_close)
{
    keep_busy(1);
    queue(LINK_BULK, LINK_BULK, 4, NULL);
    queue(LINK_FIRST, LINK_FIRST, 4, NULL);
    queue(LINK_NORMAL, LINK_NORMAL, 4, NULL);
    queue(LINK_MESSAGE, LINK_MESSAGE, 4, NULL);
    queue(LINK_HIGH, LINK_HIGH, 4, NULL);
    set_room(SIZE_MAX);
    pump();
    char got[80];
    turns(got);
    assert_string_equal(got, "fhnmb");
}

TEST_WITH(the_first_pipe_carries_beginnings_in_order_whatever_fills_the_others, setup_two, world_close)
{
    w->fakes[1].send_room = 0;
    for (int i = 0; i < LINK_DATA_QUEUE; i++)
        queue(LINK_NORMAL, LINK_NORMAL, 4096, NULL);
    for (uint32_t i = 0; i < 5; i++)
        queue(LINK_FIRST, i, 100, NULL);
    pump();
    for (uint32_t i = 0; i < 5; i++) {
        struct frame frame = next_out(0, NULL);
        assert_int_equal(frame.kind, FRAME_MESSAGE);
        assert_int_equal(frame.lane, i);
    }
    assert_true(out_is_empty(0));
}

TEST_WITH(short_data_takes_the_first_pipe_where_the_others_are_busy, setup_two, world_close)
{
    w->fakes[1].send_room = 0;
    queue(LINK_NORMAL, 1, 4096, NULL);
    pump();
    queue(LINK_NORMAL, 2, 1025, NULL);
    pump();
    assert_true(out_is_empty(0)); /* too long for it */
    queue(LINK_HIGH, 3, 1024, NULL);
    pump();
    assert_int_equal(next_out(0, NULL).lane, 3);
    assert_true(out_is_empty(0));
}

TEST_WITH(queued_until_a_frame_is_on_its_way, setup_two, world_close)
{
    assert_false(link_queued(&w->link, &owners[LINK_FIRST]));
    set_room(0);
    queue(LINK_FIRST, 0, 4, NULL);
    assert_true(link_queued(&w->link, &owners[LINK_FIRST]));
    assert_false(link_queued(&w->link, &owners[LINK_HIGH]));
    queue(LINK_FIRST, 1, 4, NULL);
    pump();
    assert_false(link_queued(&w->link, &owners[LINK_FIRST])); /* one is, though the other waits */
    set_room(SIZE_MAX);
    pump();
    assert_false(link_queued(&w->link, &owners[LINK_FIRST]));
}

TEST_WITH(forgotten_frames_free_their_copies, setup_two, world_close)
{
    uint64_t blocks = w->upper.heap.blocks;
    set_room(1);
    for (uint32_t i = 0; i < 3; i++)
        queue(LINK_FIRST, i, 600, heap_alloc(&w->upper.heap, 1, 600));
    queue(LINK_HIGH, 0, 600, heap_alloc(&w->upper.heap, 1, 600));
    queue(LINK_BULK, 7, 600, heap_alloc(&w->upper.heap, 1, 600));
    pump();
    upper_clear(&w->upper);
    link_forget(&w->link, &owners[LINK_FIRST]);
    link_forget(&w->link, &owners[LINK_HIGH]);
    assert_int_equal(w->upper.heap.blocks, blocks + 3); /* two are on their way, one is another's */
    set_room(SIZE_MAX);
    pump();
    assert_int_equal(w->upper.heap.blocks, blocks);
    assert_int_equal(next_out(0, NULL).lane, 0);
    assert_true(out_is_empty(0));
    assert_int_equal(next_out(1, NULL).lane, 0);
    assert_int_equal(next_out(1, NULL).lane, 7);
    assert_true(out_is_empty(1));
}
