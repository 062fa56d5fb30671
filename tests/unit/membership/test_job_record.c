/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job may still run elsewhere, and the bytes of what is remembered of it. */
#include "membership/job_record.h"
#include "people.h"
#include "support/suite.h"

static struct view ran, now;
static bool missing[VIEW_MEMBERS_MAX];

/* Persons of five that ran the job are in another instance now: those of `same` as the same processes, those
 * of `again` started again. */
static void meet(unsigned same, unsigned again)
{
    ran = people(5, 0);
    memset(&now, 0, sizeof now);
    now.instance = 78;
    now.epoch = 1;
    for (int i = 0; i < 5; i++)
        if ((same | again) >> i & 1) {
            now.members[now.size] = person(i);
            now.members[now.size++].id.instance += again >> i & 1 ? 0x100 : 0;
        }
}

static bool elsewhere(unsigned gone)
{
    bool may = job_record_elsewhere(&ran, &now, NULL, NULL, missing);

    for (int i = 0; may && i < 5; i++)
        assert_int_equal(missing[i], gone >> i & 1);
    return may;
}

TEST(a_quorum_that_is_missing_may_run_it)
{
    meet(0, 0x3); /* two of five restart */
    assert_true(elsewhere(0x1c));
    meet(0x3, 0); /* or were cut off */
    assert_true(elsewhere(0x1c));
    meet(0x2, 0x5);
    assert_false(elsewhere(0x18));
    meet(0, 0x1f); /* the power failed */
    assert_false(elsewhere(0));
    meet(0, 0x1c); /* of most machines */
    assert_false(elsewhere(0x3));
}

TEST(half_may_run_it_with_its_leader)
{
    meet(0, 0x3);
    ran.size = 4;
    assert_false(elsewhere(0xc));
    ran.leader = 3;
    assert_true(elsewhere(0xc));
    meet(0, 0x1);
    ran.size = 2;
    assert_false(elsewhere(0x2));
    ran.leader = 1;
    assert_true(elsewhere(0x2));
}

TEST(of_one_instance_there_is_one_view)
{
    meet(0, 0x3);
    now.instance = ran.instance;
    assert_false(elsewhere(0));
}

TEST(who_was_not_heard_may_be_elsewhere)
{
    bool heard[VIEW_MEMBERS_MAX] = {true, true, false};

    meet(0x7, 0);
    assert_false(elsewhere(0x18));
    assert_true(job_record_elsewhere(&ran, &now, heard, NULL, missing));
    assert_true(missing[2]);
}

/* Two processes of one machine: one that was started again does not stand for both. */
TEST(each_process_stands_for_one)
{
    meet(0, 0x1);
    ran.size = 3;
    ran.members[1].id.node = ran.members[0].id.node;
    ran.members[2].id.node = ran.members[0].id.node;
    assert_true(elsewhere(0x6));
    now.members[now.size] = now.members[0];
    now.members[now.size++].id.instance++;
    assert_false(elsewhere(0x4));
    now.members[0].id = ran.members[2].id; /* this one runs on, here: it is no successor */
    assert_false(elsewhere(0x2));
}

/* The old instance is dead, and two others could see it: only one has enough of those who took part. */
TEST(most_who_took_part_must_ask_for_it)
{
    bool asks[VIEW_MEMBERS_MAX] = {true, true, true, false, false};
    struct identity took_part[3] = {person(2).id, person(3).id, person(4).id};

    meet(0, 0x1f);
    job_record_mark(&ran, took_part, 3);
    assert_true(job_record_elsewhere(&ran, &now, NULL, asks, missing));
    for (int i = 0; i < 5; i++)
        assert_int_equal(missing[i], i > 2);
    asks[3] = true;
    assert_false(job_record_elsewhere(&ran, &now, NULL, asks, missing));
    job_record_mark(&ran, took_part, 2); /* half, with the first or without it */
    asks[3] = false;
    assert_false(job_record_elsewhere(&ran, &now, NULL, asks, missing));
    asks[2] = false;
    asks[3] = true;
    assert_true(job_record_elsewhere(&ran, &now, NULL, asks, missing));
    struct view later = ran;
    job_record_mark(&later, NULL, 0);
    asks[2] = asks[3] = false;
    assert_false(job_record_elsewhere(&later, &now, NULL, asks, missing));
    job_record_follow(&later, &ran);
    assert_true(job_record_elsewhere(&later, &now, NULL, asks, missing));
}

/* ---- the file ---- */

static uint8_t bytes[JOB_FILE_MAX];
static struct job_memory memory, back;

static size_t write_two(void)
{
    struct writer w = writer_of(bytes + JOB_FILE_HEAD, sizeof bytes - JOB_FILE_HEAD - 4);

    memory = (struct job_memory){.job = "red", .process = 9, .ran = people(2, 1)};
    job_file_put(&w, &memory);
    memory = (struct job_memory){.job = "blue", .process = 8, .ran = people(64, 0)};
    memory.ran.members[3].features = PEER_GUEST;
    job_file_put(&w, &memory);
    assert_false(w.bad);
    return job_file_end(bytes, (size_t)(w.at - (bytes + JOB_FILE_HEAD)), 2);
}

TEST(a_file_comes_back_as_it_was)
{
    struct reader r;
    const char *what;
    int count;

    size_t len = write_two();
    assert_true(job_file_begin(&r, bytes, len, &count, &what));
    assert_int_equal(count, 2);
    assert_true(job_file_next(&r, &back));
    assert_string_equal(back.job, "red");
    assert_int_equal(back.process, 9);
    assert_int_equal(back.ran.size, 2);
    assert_int_equal(back.ran.leader, 1);
    assert_true(job_file_next(&r, &back));
    assert_int_equal(back.ran.instance, 77);
    assert_int_equal(back.ran.epoch, 5);
    for (int i = 0; i < 64; i++) {
        assert_true(identity_equal(&back.ran.members[i].id, &memory.ran.members[i].id));
        assert_string_equal(back.ran.members[i].name, memory.ran.members[i].name);
        assert_int_equal(back.ran.members[i].features, i == 3 ? PEER_GUEST : 0);
    }
    assert_int_equal(reader_left(&r), 0);
}

TEST(damaged_files_are_seen)
{
    struct reader r;
    const char *what;
    int count;

    size_t len = write_two();
    for (size_t cut = 0; cut < len; cut += cut < 200 ? 1 : 97)
        assert_false(job_file_begin(&r, bytes, cut, &count, &what));
    for (size_t at = 0; at < len; at += at < 200 ? 1 : 97) {
        bytes[at] ^= 0x10;
        assert_false(job_file_begin(&r, bytes, len, &count, &what));
        assert_non_null(what);
        bytes[at] ^= 0x10;
    }
    len = job_file_end(bytes, len - 5 - JOB_FILE_HEAD, 2); /* the sum is right, the rest is not */
    assert_true(job_file_begin(&r, bytes, len, &count, &what));
    assert_true(job_file_next(&r, &back));
    assert_false(job_file_next(&r, &back));
    len = job_file_end(bytes, 0, JOB_FILE_JOBS_MAX + 1);
    assert_false(job_file_begin(&r, bytes, len, &count, &what));
}

TEST(the_bytes_are_those_of_the_document)
{
    struct writer w = writer_of(bytes + JOB_FILE_HEAD, sizeof bytes - JOB_FILE_HEAD - 4);
    static const uint8_t begin[] = {'H', 'J', 'O', 'B', 1, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 'r', 77,
                                    0,   0,   0,   0,   0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 7,   0xa5};
    static const uint8_t end[] = {0x07, 0x10, 0, 0, 0, 0, 0, 0, 1, 3, 'b', 'o', 'b'};

    memory = (struct job_memory){.job = "r", .process = 9, .ran = people(1, 0)};
    memory.ran.members[0] = person(7);
    memory.ran.members[0].features = PEER_GUEST;
    memcpy(memory.ran.members[0].name, "bob", 4);
    job_file_put(&w, &memory);
    size_t len = job_file_end(bytes, (size_t)(w.at - (bytes + JOB_FILE_HEAD)), 1);
    assert_int_equal(len, 8 + 8 + 2 + 18 + 41 + 4 + 4);
    assert_memory_equal(bytes, begin, sizeof begin);
    assert_memory_equal(bytes + len - 4 - sizeof end, end, sizeof end);
}
