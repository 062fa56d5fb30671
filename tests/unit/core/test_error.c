/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses have names, sentences and scopes; errors keep their text, cut it and belong to their thread. */
#include <pthread.h>

#include "core/error.h"
#include "support/suite.h"

static const struct {
    int status;
    const char *name;
    enum hearth_scope scope;
} expected[] = {
    {HEARTH_OK, "HEARTH_OK", HEARTH_SCOPE_NONE},
    {HEARTH_BEHIND, "HEARTH_BEHIND", HEARTH_SCOPE_NONE},
    {HEARTH_INVALID, "HEARTH_INVALID", HEARTH_SCOPE_ARGUMENT},
    {HEARTH_UNSUPPORTED, "HEARTH_UNSUPPORTED", HEARTH_SCOPE_ARGUMENT},
    {HEARTH_TIMEOUT, "HEARTH_TIMEOUT", HEARTH_SCOPE_OPERATION},
    {HEARTH_CANCELLED, "HEARTH_CANCELLED", HEARTH_SCOPE_OPERATION},
    {HEARTH_ABORTED, "HEARTH_ABORTED", HEARTH_SCOPE_OPERATION},
    {HEARTH_MISMATCH, "HEARTH_MISMATCH", HEARTH_SCOPE_OPERATION},
    {HEARTH_DIFFERS, "HEARTH_DIFFERS", HEARTH_SCOPE_OPERATION},
    {HEARTH_POISONED, "HEARTH_POISONED", HEARTH_SCOPE_OPERATION},
    {HEARTH_NO_MEMORY, "HEARTH_NO_MEMORY", HEARTH_SCOPE_OPERATION},
    {HEARTH_LIMIT, "HEARTH_LIMIT", HEARTH_SCOPE_OPERATION},
    {HEARTH_TOO_LONG, "HEARTH_TOO_LONG", HEARTH_SCOPE_OPERATION},
    {HEARTH_NO_SUCH_CALL, "HEARTH_NO_SUCH_CALL", HEARTH_SCOPE_OPERATION},
    {HEARTH_CALL_FAILED, "HEARTH_CALL_FAILED", HEARTH_SCOPE_OPERATION},
    {HEARTH_BUSY, "HEARTH_BUSY", HEARTH_SCOPE_OPERATION},
    {HEARTH_COPY_FAILED, "HEARTH_COPY_FAILED", HEARTH_SCOPE_OPERATION},
    {HEARTH_PENDING, "HEARTH_PENDING", HEARTH_SCOPE_NONE},
    {HEARTH_PEER_LOST, "HEARTH_PEER_LOST", HEARTH_SCOPE_PEER},
    {HEARTH_PROTOCOL, "HEARTH_PROTOCOL", HEARTH_SCOPE_PEER},
    {HEARTH_VIEW_CHANGED, "HEARTH_VIEW_CHANGED", HEARTH_SCOPE_GROUP},
    {HEARTH_GROUP_BROKEN, "HEARTH_GROUP_BROKEN", HEARTH_SCOPE_GROUP},
    {HEARTH_FORKED, "HEARTH_FORKED", HEARTH_SCOPE_NODE},
    {HEARTH_CLOSED, "HEARTH_CLOSED", HEARTH_SCOPE_NODE},
    {HEARTH_SYSTEM, "HEARTH_SYSTEM", HEARTH_SCOPE_NODE},
};
#define EXPECTED_COUNT (sizeof(expected) / sizeof(expected[0]))

TEST(every_status_has_name_scope_and_its_own_sentence)
{
    for (size_t i = 0; i < EXPECTED_COUNT; i++) {
        assert_string_equal(hearth_status_name(expected[i].status), expected[i].name);
        assert_int_equal(hearth_status_scope(expected[i].status), expected[i].scope);
        const char *sentence = hearth_status_text(expected[i].status);
        assert_int_equal(sentence[strlen(sentence) - 1], '.');
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(sentence, hearth_status_text(expected[j].status));
    }
}

TEST(every_negative_status_is_an_error)
{
    size_t errors = 0;

    for (size_t i = 0; i < EXPECTED_COUNT; i++)
        assert_int_equal(status_is_error(expected[i].status), expected[i].scope != HEARTH_SCOPE_NONE);
    for (int status = -1000; status <= 1000; status++)
        errors += status_is_error(status);
    assert_int_equal(errors, EXPECTED_COUNT - 3);
}

TEST(numbers_that_are_no_status_are_survived)
{
    static const int unknown[] = {3, -1, -100, -214, -303, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_string_equal(hearth_status_name(unknown[i]), "HEARTH_?");
        assert_true(strlen(hearth_status_text(unknown[i])) > 0);
        assert_int_equal(hearth_status_scope(unknown[i]), HEARTH_SCOPE_NONE);
    }
}

static struct error e;

TEST(set_fills_in_all_and_clear_empties)
{
    assert_int_equal(error_set(&e, HEARTH_TIMEOUT, 3, "waited for rank %d", 3), HEARTH_TIMEOUT);
    assert_int_equal(e.status, HEARTH_TIMEOUT);
    assert_int_equal(e.rank, 3);
    assert_string_equal(e.text, "waited for rank 3");
    error_clear(&e);
    assert_int_equal(e.status, HEARTH_OK);
    assert_int_equal(e.rank, RANK_NONE);
    assert_string_equal(e.text, "");
    assert_int_equal(error_set(NULL, HEARTH_LIMIT, 0, "nobody listens"), HEARTH_LIMIT);
}

TEST(long_texts_are_cut_with_dots)
{
    struct {
        struct error inside;
        char guard[8];
    } boxed;
    char text[2 * ERROR_TEXT_MAX];

    for (size_t len = ERROR_TEXT_MAX - 3; len < ERROR_TEXT_MAX + 3; len++) {
        memset(text, 'x', len);
        text[len] = '\0';
        memset(&boxed, 7, sizeof boxed);
        error_set(&boxed.inside, HEARTH_INVALID, RANK_NONE, "%s", text);
        assert_int_equal(strlen(boxed.inside.text), len < ERROR_TEXT_MAX ? len : ERROR_TEXT_MAX - 1);
        if (len >= ERROR_TEXT_MAX)
            assert_string_equal(boxed.inside.text + ERROR_TEXT_MAX - 5, "x...");
        for (size_t i = 0; i < sizeof boxed.guard; i++)
            assert_int_equal(boxed.guard[i], 7);
    }
}

TEST(an_error_can_be_wrapped_in_place)
{
    error_because(&e, HEARTH_REASON_PEER_SILENT, HEARTH_PEER_LOST, 2, "rank 2 closed");
    e.origin = 5;
    assert_int_equal(error_wrap(&e, &e, "all_reduce: %s", e.text), HEARTH_PEER_LOST);
    assert_string_equal(e.text, "all_reduce: rank 2 closed");
    assert_int_equal(e.status, HEARTH_PEER_LOST);
    assert_int_equal(e.reason, HEARTH_REASON_PEER_SILENT);
    assert_int_equal(e.rank, 2);
    assert_int_equal(e.origin, 5);
    error_set(&e, HEARTH_ABORTED, 1, "sync: %s", e.text); /* a failure of its own */
    assert_string_equal(e.text, "sync: all_reduce: rank 2 closed");
    assert_int_equal(e.reason, HEARTH_REASON_NONE);
    assert_int_equal(e.origin, RANK_NONE);
}

TEST(every_reason_has_a_name_of_its_own)
{
    for (int i = 0; i < REASON_COUNT; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(hearth_reason_name((enum hearth_reason)i),
                                    hearth_reason_name((enum hearth_reason)k));
    assert_string_equal(hearth_reason_name(HEARTH_REASON_BUSY), "busy");
    assert_string_equal(hearth_reason_name((enum hearth_reason)REASON_COUNT), "?");
    assert_string_equal(hearth_reason_name((enum hearth_reason) - 1), "?");
}

static void *other_thread(void *arg)
{
    if (strcmp(hearth_error_text(), "") != 0)
        return (void *)"a new thread begins with an error";
    error_set(error_last(), HEARTH_CLOSED, 1, "theirs");
    return NULL;
}

TEST(the_last_error_belongs_to_its_thread)
{
    pthread_t thread;
    void *complaint;

    error_set(error_last(), HEARTH_INVALID, RANK_NONE, "ours");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &complaint), 0);
    assert_null(complaint);
    assert_string_equal(hearth_error_text(), "ours");
}

TEST(a_changed_view_says_how_to_go_on)
{
    static const char advice[] = "; hearth_group_reform gives the next group";
    char text[ERROR_TEXT_MAX];
    error_set(&e, HEARTH_PEER_LOST, 1, "rank 1 is lost");
    error_show(&e, text);
    assert_string_equal(text, "rank 1 is lost");
    *error_last() = e;
    error_last()->status = HEARTH_VIEW_CHANGED;
    for (int i = 0; i < 2; i++)
        assert_string_equal(hearth_error_text(), "rank 1 is lost; hearth_group_reform gives the next group");
    for (int len = ERROR_TEXT_MAX - 40; len < ERROR_TEXT_MAX + 10; len++) {
        error_set(&e, HEARTH_VIEW_CHANGED, 1, "%0*d", len, 7);
        error_show(&e, text);
        size_t end = strlen(text);
        assert_true(end < ERROR_TEXT_MAX);
        assert_string_equal(text + end - strlen(advice), advice);
        assert_int_equal(strncmp(text, "000", 3), 0);
    }
}

TEST(tags_of_people_are_shown)
{
    assert_string_equal(tag_text(0).s, " (tag 0)");
    assert_string_equal(tag_text(UINT32_MAX).s, " (tag 4294967295)");
    assert_string_equal(tag_text(UINT64_C(18324011360988792451)).s, "");
}
