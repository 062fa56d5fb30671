/* SPDX-License-Identifier: Apache-2.0 */
/* Who may come in: the verdicts, the file with what people write into it, and changes by several at once. */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"
#include "security/trust_list.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define PROCESSES 8
#define CHANGES   10

#define DIGITS(c) c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c
#define A         DIGITS("aa")
#define B         DIGITS("bb")

static struct heap heap;
static struct error error;

static struct node_id id_of(int byte)
{
    struct node_id id;
    memset(&id, byte, sizeof id);
    return id;
}

static int begin(void **state)
{
    heap_init(&heap, 0);
    return folder_make(state);
}

static int end(void **state)
{
    int removed = folder_remove(state);
    return heap.blocks == 0 ? removed : -1;
}

static void put(const char *text)
{
    file_put(folder_path("trust"), text, strlen(text), 0600);
}

static struct trust_list *opened(void)
{
    struct trust_list *list = NULL;

    if (trust_list_open(&heap, folder_path("trust"), &list, &error))
        fail_msg("%s", error.text);
    return list;
}

static void assert_judged(const struct trust_list *list, int byte, enum trust_verdict verdict)
{
    struct node_id id = id_of(byte);
    assert_int_equal(trust_list_judge(list, &id), verdict);
}

static void assert_says(const char *why)
{
    if (!strstr(error.text, why))
        fail_msg("no \"%s\" in: %s", why, error.text);
}

static void assert_refused(const char *why)
{
    struct trust_list *list = NULL;

    assert_int_equal(trust_list_open(&heap, folder_path("trust"), &list, &error), HEARTH_INVALID);
    assert_null(list);
    assert_says(why);
}

static int set(struct trust_list *list, int byte, bool revoked, const char *name)
{
    struct node_id id = id_of(byte);
    struct trust_entry entry = {.revoked = revoked};

    snprintf(entry.name, sizeof entry.name, "%s", name);
    return trust_list_set(list, &id, &entry, &error);
}

/* ---- verdicts ---- */

TEST_WITH(an_empty_list_lets_all_in, begin, end)
{
    struct trust_list *none = NULL, *list = opened();

    assert_int_equal(trust_list_open(&heap, NULL, &none, &error), HEARTH_OK);
    assert_judged(none, 0xaa, TRUST_YES);
    assert_judged(list, 0xaa, TRUST_YES);
    assert_int_equal(trust_list_count(list), 0);
    assert_int_equal(trust_list_refresh(none, &error), HEARTH_PENDING);
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_PENDING);
    assert_int_equal(set(none, 0xaa, false, ""), HEARTH_INVALID);
    assert_int_equal(file_count(folder(), "", NULL), 0); /* looking makes nothing */
    trust_list_close(none);
    trust_list_close(list);
    trust_list_close(NULL);
}

TEST_WITH(revoked_ones_stay_out, begin, end)
{
    put("revoke " A "\n");
    struct trust_list *list = opened();

    assert_judged(list, 0xaa, TRUST_REVOKED);
    assert_judged(list, 0xbb, TRUST_YES);
    trust_list_close(list);
}

TEST_WITH(with_allowed_ones_all_others_stay_out, begin, end)
{
    put("allow " A "\nrevoke " B "\n");
    struct trust_list *list = opened();

    assert_judged(list, 0xaa, TRUST_YES);
    assert_judged(list, 0xbb, TRUST_REVOKED);
    assert_judged(list, 0xcc, TRUST_UNLISTED);
    assert_string_equal(trust_verdict_text(TRUST_REVOKED), "its key was revoked (hearth trust)");
    assert_non_null(strstr(trust_verdict_text(TRUST_UNLISTED), "hearth trust"));
    assert_non_null(trust_verdict_text(TRUST_YES));
    trust_list_close(list);
}

TEST_WITH(a_revocation_wins_over_other_lines, begin, end)
{
    static const char *const texts[] = {"allow " A "\nrevoke " A "\n", "revoke " A "\nallow " A "\n"};

    for (int i = 0; i < 2; i++) {
        put(texts[i]);
        struct trust_list *list = opened();
        assert_judged(list, 0xaa, TRUST_REVOKED);
        trust_list_close(list);
    }
}

/* ---- what people write ---- */

TEST_WITH(lines_may_look_as_people_like, begin, end)
{
    put("# mine\r\n\n \t\n  allow\t" A "   the old  box \r\n#allow " B "\nrevoke " B
        " caf\xc3\xa9 \x1b[31m and a name that goes on and on and on and on and on");
    struct trust_list *list = opened();

    assert_int_equal(trust_list_count(list), 2);
    assert_false(trust_list_entry(list, 0)->revoked);
    assert_string_equal(trust_list_entry(list, 0)->name, "the old  box");
    assert_true(trust_list_entry(list, 1)->revoked);
    assert_int_equal(strlen(trust_list_entry(list, 1)->name), TRUST_NAME_MAX - 1);
    assert_memory_equal(trust_list_entry(list, 1)->name, "caf?? ?[31m and", 15);
    trust_list_close(list);
}

TEST_WITH(other_lines_are_refused_with_their_number, begin, end)
{
    put("# mine\nallow " A "\nallowed " B "\n");
    assert_refused("line 3: it begins neither with allow");
    put("revoke\n");
    assert_refused("line 1: its second word is no node id");
    put("allow " A "a\n");
    assert_refused("line 1");
    put("allow k7f3-9qwe-2xyz\n");
    assert_refused("64 hexadecimal digits");
    put("\n\nAllow " A "\n");
    assert_refused("line 3");
    assert_int_equal(unlink(folder_path("trust")), 0);
    file_put(folder_path("trust"), "allow " A "\n\0\n", 73, 0600);
    assert_refused("line 2");
}

TEST_WITH(there_is_a_limit, begin, end)
{
    const size_t line = strlen("revoke " A "\n");
    char *text = malloc((TRUST_ENTRIES_MAX + 1) * line + 1);

    for (size_t i = 0; i <= TRUST_ENTRIES_MAX; i++)
        memcpy(text + i * line, "revoke " A "\n", line);
    file_put(folder_path("trust"), text, (TRUST_ENTRIES_MAX + 1) * line, 0600);
    assert_refused("too many");
    file_put(folder_path("trust"), text, TRUST_ENTRIES_MAX * line, 0600);
    struct trust_list *list = opened();
    assert_int_equal(trust_list_count(list), TRUST_ENTRIES_MAX);
    assert_int_equal(set(list, 0xbb, true, ""), HEARTH_LIMIT);
    assert_says("is full");
    assert_int_equal(set(list, 0xaa, true, "one for all"), HEARTH_OK);
    assert_int_equal(trust_list_count(list), 1);
    trust_list_close(list);
    free(text);
    assert_int_equal(truncate(folder_path("trust"), 1 << 30), 0);
    assert_refused("too long");
}

TEST_WITH(the_file_must_be_ours, begin, end)
{
    const char *path = folder_path("trust");

    put("allow " A "\n");
    assert_int_equal(chmod(path, 0644), 0);
    trust_list_close(opened());
    assert_int_equal(chmod(path, 0664), 0);
    assert_refused("can be written by others (mode 0664): chmod go-w");
    assert_int_equal(chmod(path, 0602), 0);
    assert_refused("can be written by others");
    assert_int_equal(rename(path, folder_path("other")), 0);
    assert_int_equal(symlink(folder_path("other"), path), 0);
    assert_refused("symbolic link");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused("not a regular file");
}

/* ---- changes ---- */

TEST_WITH(changes_are_seen, begin, end)
{
    struct trust_list *list = opened();

    put("revoke " A "\n");
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_OK);
    assert_judged(list, 0xaa, TRUST_REVOKED);
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_PENDING);
    put("revoke " B " b\n");
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_OK);
    assert_judged(list, 0xaa, TRUST_YES);
    assert_judged(list, 0xbb, TRUST_REVOKED);
    put("");
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_OK);
    assert_int_equal(trust_list_count(list), 0);
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_PENDING);
    trust_list_close(list);
}

/* An editor renames: for a moment there is no file. */
TEST_WITH(a_file_that_vanishes_lifts_nothing, begin, end)
{
    put("revoke " A "\n");
    struct trust_list *copy = NULL, *list = opened();

    for (int i = 0; i < 2; i++) {
        assert_int_equal(rename(folder_path("trust"), folder_path("trust~")), 0);
        assert_int_equal(trust_list_refresh(list, &error), HEARTH_INVALID);
        assert_says("is missing, and it was there");
        assert_int_equal(trust_list_refresh(list, &error), HEARTH_PENDING); /* said once */
        assert_judged(list, 0xaa, TRUST_REVOKED);
        assert_int_equal(set(list, 0xbb, true, ""), HEARTH_INVALID); /* what it held would be lost */
        assert_int_equal(trust_list_copy(list, &heap, &copy, &error), HEARTH_OK);
        assert_int_equal(trust_list_refresh(copy, &error), HEARTH_PENDING);
        assert_judged(copy, 0xaa, TRUST_REVOKED);
        assert_int_equal(rename(folder_path("trust~"), folder_path("trust")), 0);
        assert_int_equal(trust_list_refresh(list, &error), HEARTH_OK);
        assert_judged(list, 0xaa, TRUST_REVOKED);
        assert_int_equal(trust_list_refresh(copy, &error), HEARTH_OK);
        assert_judged(copy, 0xaa, TRUST_REVOKED);
        trust_list_close(copy);
    }
    put("revoke " B "\n");
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_OK);
    assert_judged(list, 0xaa, TRUST_YES);
    assert_int_equal(set(list, 0xcc, true, ""), HEARTH_OK);
    assert_judged(list, 0xbb, TRUST_REVOKED);
    trust_list_close(list);
}

TEST_WITH(a_bad_change_leaves_the_list_as_it_was, begin, end)
{
    put("revoke " A "\n");
    struct trust_list *list = opened();

    put("nonsense\n");
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_INVALID);
    assert_says("line 1");
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_PENDING); /* said once, not at every look */
    assert_judged(list, 0xaa, TRUST_REVOKED);
    assert_int_equal(set(list, 0xbb, true, ""), HEARTH_INVALID); /* nor is it written over */
    put("revoke " B "\n");
    assert_int_equal(chmod(folder_path("trust"), 0666), 0);
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_INVALID);
    assert_judged(list, 0xaa, TRUST_REVOKED);
    assert_int_equal(chmod(folder_path("trust"), 0600), 0); /* the fix alone is a change */
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_OK);
    assert_judged(list, 0xbb, TRUST_REVOKED);

    heap.fail_after = 0;
    put("revoke " A " a\n");
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_NO_MEMORY);
    assert_judged(list, 0xbb, TRUST_REVOKED);
    assert_int_equal(set(list, 0xcc, true, ""), HEARTH_NO_MEMORY);
    heap.fail_after = -1; /* a passing shortage is not for good */
    assert_int_equal(trust_list_refresh(list, &error), HEARTH_OK);
    assert_judged(list, 0xaa, TRUST_REVOKED);
    trust_list_close(list);
}

TEST_WITH(memory_may_run_out_anywhere, begin, end)
{
    struct trust_list *list = NULL;
    int status = HEARTH_NO_MEMORY;

    put("revoke " A "\n");
    for (int n = 0; status == HEARTH_NO_MEMORY && n < 20; n++) {
        heap.fail_after = n;
        status = trust_list_open(&heap, folder_path("trust"), &list, &error);
        assert_true(status == HEARTH_OK || heap.blocks == 0);
    }
    heap.fail_after = -1;
    assert_int_equal(status, HEARTH_OK);
    trust_list_close(list);
}

TEST_WITH(entries_are_set_and_forgotten, begin, end)
{
    struct trust_list *list = opened();
    struct node_id a = id_of(0xaa);
    char text[1000];

    assert_int_equal(set(list, 0xaa, false, "box"), HEARTH_OK);
    assert_judged(list, 0xbb, TRUST_UNLISTED);
    assert_int_equal(file_mode(folder_path("trust")), 0600);
    assert_int_equal(set(list, 0xbb, false, ""), HEARTH_OK);
    assert_int_equal(set(list, 0xaa, true, "box"), HEARTH_OK);
    assert_judged(list, 0xaa, TRUST_REVOKED);
    text[file_get(folder_path("trust"), text, sizeof text - 1)] = '\0';
    assert_int_equal(text[0], '#'); /* tells people what it is */
    assert_string_equal(strchr(text, '\n'), "\nrevoke " A " box\nallow " B "\n");
    assert_int_equal(trust_list_set(list, &a, NULL, &error), HEARTH_OK);
    assert_int_equal(trust_list_set(list, &a, NULL, &error), HEARTH_OK);
    assert_judged(list, 0xaa, TRUST_UNLISTED);
    assert_int_equal(trust_list_count(list), 1);
    trust_list_close(list);
}

TEST_WITH(other_lines_stay, begin, end)
{
    put("# mine\n\nallow " A " a\n# more\nrevoke " A "\nallow " B "  two  words");
    struct trust_list *list = opened();
    char text[1000];

    assert_int_equal(set(list, 0xaa, true, "gone"), HEARTH_OK);
    text[file_get(folder_path("trust"), text, sizeof text - 1)] = '\0';
    assert_string_equal(text, "# mine\n\nrevoke " A " gone\n# more\nallow " B "  two  words\n");
    trust_list_close(list);
}

TEST_WITH(a_name_cannot_bring_a_line_of_its_own, begin, end)
{
    struct trust_list *list = opened();
    struct trust_entry entry = {.revoked = false};
    struct node_id a = id_of(0xaa);

    assert_int_equal(set(list, 0xaa, true, "x\nallow " B), HEARTH_OK);
    assert_int_equal(trust_list_count(list), 1);
    assert_judged(list, 0xaa, TRUST_REVOKED);
    memset(entry.name, 'n', sizeof entry.name); /* no final 0 */
    assert_int_equal(trust_list_set(list, &a, &entry, &error), HEARTH_OK);
    assert_int_equal(strlen(trust_list_entry(list, 0)->name), TRUST_NAME_MAX - 1);
    trust_list_close(list);
}

static int revoke_some(void *arg)
{
    int first = *(const int *)arg;
    struct trust_list *list = NULL;

    if (trust_list_open(&heap, folder_path("trust"), &list, &error))
        return 1;
    for (int i = 0; i < CHANGES; i++)
        if (set(list, first + i, true, "")) {
            fprintf(stderr, "%s\n", error.text);
            return 2;
        }
    return 0;
}

TEST_WITH(changes_at_once_all_take_effect, begin, end)
{
    pid_t children[PROCESSES];
    int first[PROCESSES];
    struct trust_list *list;
    const char *other = NULL;

    watchdog(120, "processes that change a trust file at once");
    for (int i = 0; i < PROCESSES; i++) {
        first[i] = i * CHANGES;
        children[i] = fork_start(revoke_some, &first[i]);
    }
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(fork_end(children[i]), 0);
    list = opened();
    assert_int_equal(trust_list_count(list), PROCESSES * CHANGES);
    for (int i = 0; i < PROCESSES * CHANGES; i++)
        assert_judged(list, i, TRUST_REVOKED);
    assert_int_equal(file_count(folder(), "trust", &other), 2);
    assert_string_equal(other, "trust.lock");
    trust_list_close(list);
    watchdog(0, NULL);
}

static int set_as_nobody(void *arg)
{
    struct trust_list *list = NULL;

    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
        return 2;
    if (trust_list_open(&heap, folder_path("trust"), &list, &error))
        return 3;
    return set(list, 0xaa, true, "") == HEARTH_SYSTEM && trust_list_count(list) == 0 ? 0 : 4;
}

TEST_WITH(a_folder_that_cannot_be_written, begin, end)
{
    assert_int_equal(chmod(folder(), 0555), 0);
    assert_int_equal(child_run(set_as_nobody, NULL), 0);
    assert_int_equal(chmod(folder(), 0755), 0);
    assert_int_equal(file_count(folder(), "", NULL), 0);
}
