/* SPDX-License-Identifier: Apache-2.0 */
/* The key file: made once, by whoever is first; read only where it can be trusted; never overwritten; and
 * nothing is left behind when it cannot be made. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "folder.h"
#include "security/node_key.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define PROCESSES 8
#define ROUNDS    10
#define KILLED    20
#define NOBODY    65534

/* The seed and the public key of the second example in RFC 8032. */
#define SEED "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
#define LINE "hearth-node-key 1 " SEED " 085bd1f1\n"
static const uint8_t public_key[PUBLIC_KEY_LEN] = {
    0x3d, 0x40, 0x17, 0xc3, 0xe8, 0x43, 0x89, 0x5a, 0x92, 0xb7, 0x0a, 0xa7, 0x4d, 0x1b, 0x7e, 0xbc,
    0x9c, 0x98, 0x2c, 0xcf, 0x2e, 0xc4, 0x96, 0x8c, 0xc0, 0xcd, 0x55, 0xf1, 0x2a, 0xf4, 0x66, 0x0c};

static struct error error;

static struct node_id id_of(const char *path)
{
    struct node_key *key = NULL;
    struct node_id id;

    if (node_key_load(path, &key, &error))
        fail_msg("%s", error.text);
    id = *node_key_id(key);
    node_key_close(key);
    return id;
}

static void assert_says(const char *why)
{
    if (!strstr(error.text, why))
        fail_msg("no \"%s\" in: %s", why, error.text);
    assert_null(strstr(error.text, SEED));
}

/* Both ways of reading refuse it, and tell why and how to go on. */
static void assert_refused(const char *path, const char *why, const char *fix)
{
    struct node_key *key = NULL;

    assert_int_equal(node_key_load(path, &key, &error), HEARTH_INVALID);
    assert_says(why);
    assert_says(fix);
    assert_int_equal(node_key_read(path, &key, &error), HEARTH_INVALID);
    assert_says(why);
    assert_null(key);
}

/* ---- making and reading ---- */

TEST_WITH(first_use_makes_it, folder_make, folder_remove)
{
    const char *path = folder_path("a/b/node.key"), *other = NULL;
    char text[200];
    uint8_t seed[KEY_SEED_LEN];
    struct node_id first, second;

    umask(0);
    first = id_of(path);
    second = id_of(path);
    assert_true(node_id_equal(&first, &second));
    assert_int_equal(file_mode(path), 0600);
    assert_int_equal(file_mode(folder_path("a/b")), 0700);
    assert_int_equal(file_mode(folder_path("a")), 0700);
    assert_int_equal(file_count(folder_path("a/b"), "node.key", &other), 1);
    assert_int_equal(file_get(path, text, sizeof text), KEY_LINE_LEN);
    assert_null(key_line_parse(text, KEY_LINE_LEN, seed));
}

TEST_WITH(the_users_mask_does_not_matter, folder_make, folder_remove)
{
    umask(0277);
    id_of(folder_path("node.key"));
    umask(022);
    assert_int_equal(file_mode(folder_path("node.key")), 0600);
    id_of(folder_path("node.key"));
}

TEST_WITH(a_name_alone_is_in_the_working_directory, folder_make, folder_remove)
{
    char before[FOLDER_PATH_MAX];
    struct node_id first, second;

    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder()), 0);
    first = id_of("node.key");
    second = id_of("./node.key");
    assert_int_equal(chdir(before), 0);
    assert_true(node_id_equal(&first, &second));
}

TEST_WITH(the_line_is_that_of_the_book, folder_make, folder_remove)
{
    const char *path = folder_path("node.key");
    uint8_t seed[KEY_SEED_LEN];
    char line[KEY_LINE_LEN];

    for (size_t cut = 0; cut <= 1; cut++) { /* an editor may take the new line away */
        struct node_key *key = NULL;
        file_put(path, LINE, strlen(LINE) - cut, 0400);
        assert_int_equal(node_key_read(path, &key, &error), HEARTH_OK);
        assert_memory_equal(node_key_public(key), public_key, PUBLIC_KEY_LEN);
        node_key_close(key);
    }
    assert_null(key_line_parse(LINE, strlen(LINE), seed));
    key_line_write(seed, line);
    assert_memory_equal(line, LINE, KEY_LINE_LEN);
}

TEST_WITH(reading_makes_nothing, folder_make, folder_remove)
{
    struct node_key *key = NULL;

    assert_int_equal(node_key_read(folder_path("a/node.key"), &key, &error), HEARTH_INVALID);
    assert_says("there is no key file");
    assert_int_equal(node_key_read("", &key, &error), HEARTH_INVALID);
    assert_int_equal(node_key_load("", &key, &error), HEARTH_INVALID);
    assert_null(key);
    assert_int_equal(file_count(folder(), "", NULL), 0);
}

/* ---- what is no key file ---- */

TEST_WITH(links_are_refused, folder_make, folder_remove)
{
    const char *file = folder_path("file"), *link = folder_path("node.key");
    char text[200];

    file_put(file, LINE, strlen(LINE), 0600);
    assert_int_equal(symlink(file, link), 0);
    assert_refused(link, "symbolic link", "its own path");
    assert_int_equal(unlink(file), 0); /* nor is anything made where it points to */
    assert_refused(link, "symbolic link", "its own path");
    assert_int_equal(file_count(folder(), "node.key", NULL), 1);
    file_put(file, "mine", 4, 0600);
    assert_refused(link, "symbolic link", "its own path");
    assert_int_equal(file_get(file, text, sizeof text), 4);
}

TEST_WITH(what_is_no_file_is_refused, folder_make, folder_remove)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const char *path = folder_path("node.key");
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    watchdog(60, "a key file that is none"); /* a pipe would hold us for ever */
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused(path, "is a directory", "path of a file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "not a regular file", "move it away");
    assert_int_equal(unlink(path), 0);
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_refused(path, "not a regular file", "move it away");
    close(fd);
    assert_refused("/dev/null", "", "");
    file_put(folder_path("file"), "", 0, 0600);
    assert_refused(folder_path("file/node.key"), "not a directory", "correct the path");
    watchdog(0, NULL);
}

TEST_WITH(rights_of_others_are_refused, folder_make, folder_remove)
{
    const char *path = folder_path("node.key");
    char fix[FOLDER_PATH_MAX + 100];

    file_put(path, LINE, strlen(LINE), 0600);
    snprintf(fix, sizeof fix, "chmod 600 %s", path);
    for (mode_t bit = 1; bit <= 040; bit <<= 1) {
        assert_int_equal(chmod(path, 0600 | bit), 0);
        assert_refused(path, "by others (mode 06", fix);
        assert_int_equal(file_mode(path), 0600 | bit);
    }
    assert_int_equal(chmod(path, 0644), 0);
    assert_refused(path, "can be read by others (mode 0644): ", fix);
    assert_int_equal(chmod(path, 0666), 0);
    assert_refused(path, "can be written by others (mode 0666): ", fix);
    assert_int_equal(chmod(path, 0600), 0);
    id_of(path);
}

TEST_WITH(files_of_others_are_refused, folder_make, folder_remove)
{
    const char *path = folder_path("node.key");

    if (geteuid() != 0) {
        print_message("skipped: only root can give a file away\n");
        skip();
    }
    file_put(path, LINE, strlen(LINE), 0600);
    assert_int_equal(chown(path, NOBODY, (gid_t)-1), 0);
    assert_refused(path, "belongs to user 65534, and this process to 0", "chown");
}

TEST_WITH(contents_of_others_are_refused, folder_make, folder_remove)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "is empty"},
        {"\n", "no key file of hearth"},
        {"-----BEGIN OPENSSH PRIVATE KEY-----\n", "no key file of hearth"},
        {"hearth1-lab-000g40r40m30e209185gr38e1w8124gk2gahc5rr34d1p70x3rfn1hdrv8\n", "no key file of hearth"},
        {"hearth-node-key 2 " SEED " 085bd1f1\n", "another version"},
        {"hearth-node-key 11 " SEED " 085bd1f1\n", "another version"},
        {"hearth-node-", "cut short"},
        {"hearth-node-key", "cut short"},
        {"hearth-node-key 1", "cut short"},
        {"hearth-node-key 1 " SEED " 085bd1f\n", "damaged"},
        {"hearth-node-key 1 " SEED " 085bd1f0\n", "checksum"},
        {"hearth-node-key 1 x" SEED " 085bd1f\n", "damaged"},
        {LINE "\n", "more in it"},
        {"hearth-node-key 1 " SEED " 085bd1f1 ", "more in it"},
    };
    const char *path = folder_path("node.key");
    char text[200];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t len = strlen(cases[i].text);
        file_put(path, cases[i].text, len, 0600);
        assert_refused(path, cases[i].why, "move it away");
        assert_int_equal(file_get(path, text, sizeof text), len); /* never overwritten */
        assert_memory_equal(text, cases[i].text, len);
    }
}

TEST_WITH(every_damage_is_noticed, folder_make, folder_remove)
{
    uint8_t seed[KEY_SEED_LEN];
    char line[] = LINE;

    for (size_t len = 0; len < KEY_LINE_LEN - 1; len++)
        assert_non_null(key_line_parse(line, len, seed));
    for (size_t i = 0; i < KEY_LINE_LEN; i++) {
        for (int change = 1; change < 256; change++) {
            bool message = line[i] >= 'a' && i > 18; /* digits may be in upper case */
            line[i] = (char)(line[i] ^ change);
            if (!message || change != 0x20)
                assert_non_null(key_line_parse(line, KEY_LINE_LEN, seed));
            line[i] = (char)(line[i] ^ change);
        }
    }
    assert_null(key_line_parse(line, KEY_LINE_LEN, seed));
}

TEST_WITH(a_huge_file_is_not_read, folder_make, folder_remove)
{
    const char *path = folder_path("node.key");

    file_put(path, LINE, strlen(LINE), 0600);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_refused(path, "too long", "move it away");
}

/* ---- when it cannot be made ---- */

static int load_as_nobody(void *arg)
{
    struct node_key *key = NULL;

    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
        return 99;
    return node_key_load(arg, &key, &error) == HEARTH_SYSTEM && strstr(error.text, "denied") && !key ? 0 : 1;
}

TEST_WITH(a_folder_that_cannot_be_written, folder_make, folder_remove)
{
    const char *closed = folder_path("closed");

    assert_int_equal(mkdir(closed, 0555), 0);
    assert_int_equal(chmod(folder(), 0755), 0);
    assert_int_equal(child_run(load_as_nobody, (void *)folder_path("closed/node.key")), 0);
    assert_int_equal(child_run(load_as_nobody, (void *)folder_path("closed/sub/node.key")), 0);
    assert_int_equal(file_count(closed, "", NULL), 0);
    assert_int_equal(chmod(closed, 0), 0);
    assert_int_equal(child_run(load_as_nobody, (void *)folder_path("closed/node.key")), 0);
    assert_int_equal(chmod(closed, 0700), 0);
    assert_int_equal(file_count(closed, "", NULL), 0);
}

static int load_with_a_short_limit(void *arg)
{
    const struct rlimit limit = {.rlim_cur = 10, .rlim_max = 10};
    struct node_key *key = NULL;

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 99;
    return node_key_load(arg, &key, &error) == HEARTH_SYSTEM && strstr(error.text, "write") && !key ? 0 : 1;
}

TEST_WITH(a_file_that_gets_no_room, folder_make, folder_remove)
{
    assert_int_equal(child_run(load_with_a_short_limit, (void *)folder_path("node.key")), 0);
    assert_int_equal(file_count(folder(), "", NULL), 0);
    id_of(folder_path("node.key"));
}

#ifdef __linux__

#define NOT_ALLOWED 77

static bool fill_up(const char *path)
{
    static const char block[4096];
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    ssize_t put;

    do
        put = write(fd, block, sizeof block);
    while (put > 0);
    close(fd);
    return errno == ENOSPC;
}

/* In a mount namespace of its own: the disk is gone with the child. */
static int load_on_a_full_disk(void *arg)
{
    const char *full = arg;
    struct node_key *key = NULL;
    char path[2 * FOLDER_PATH_MAX];

    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", full, "tmpfs", 0, "size=16k,mode=700") != 0)
        return NOT_ALLOWED;
    snprintf(path, sizeof path, "%s/filling", full);
    if (!fill_up(path))
        return 2;
    snprintf(path, sizeof path, "%s/node.key", full);
    if (node_key_load(path, &key, &error) != HEARTH_SYSTEM || key)
        return 3;
    if (!strstr(error.text, "No space left"))
        return 4;
    if (file_count(full, "", NULL) != 1) /* the filling */
        return 5;
    snprintf(path, sizeof path, "%s/filling", full);
    unlink(path);
    snprintf(path, sizeof path, "%s/node.key", full);
    return node_key_load(path, &key, &error) == HEARTH_OK ? 0 : 6;
}

TEST_WITH(a_full_disk, folder_make, folder_remove)
{
    int code;

    assert_int_equal(mkdir(folder_path("full"), 0700), 0);
    code = child_run(load_on_a_full_disk, (void *)folder_path("full"));
    if (code == NOT_ALLOWED) {
        print_message("skipped: no right to mount a small disk in a namespace\n");
        skip();
    }
    assert_int_equal(code, 0);
}

#else

TEST_WITH(a_full_disk, folder_make, folder_remove)
{
    print_message("skipped: only on Linux\n");
    skip();
}

#endif

/* ---- several at once ---- */

struct race {
    const char *path;
    int start, ids; /* to read from until all may go; to write the id to */
    bool no_links;
};

static int race_one(void *arg)
{
    const struct race *race = arg;
    struct node_key *key = NULL;
    char go;

    if (race->no_links && !links_refused())
        return 77;
    if (read(race->start, &go, 1) != 0) /* the end of the pipe, for all at once */
        return 2;
    if (node_key_load(race->path, &key, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 3;
    }
    return write(race->ids, node_key_id(key), NODE_ID_LEN) == NODE_ID_LEN ? 0 : 4;
}

/* 0, or what a child has returned. All who come get the same key. */
static int race_run(const char *path, bool no_links)
{
    int start[2], ids[2], code = 0;
    pid_t children[PROCESSES];
    struct node_id wanted, id;

    assert_int_equal(pipe(start), 0);
    assert_int_equal(pipe(ids), 0);
    struct race race = {.path = path, .start = start[0], .ids = ids[1], .no_links = no_links};
    int keep = start[1];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            close(keep);
            _exit(race_one(&race));
        }
    }
    close(keep);
    for (int i = 0; i < PROCESSES; i++) {
        int ended = fork_end(children[i]);
        code = ended ? ended : code;
    }
    if (code == 0) {
        wanted = id_of(path);
        for (int i = 0; i < PROCESSES; i++) {
            assert_int_equal(read(ids[0], &id, sizeof id), sizeof id);
            assert_true(node_id_equal(&id, &wanted));
        }
    }
    close(start[0]);
    close(ids[0]);
    close(ids[1]);
    return code;
}

/* In a new folder each time, where so many files are left. */
static void race_rounds(bool no_links, int files, const char *left)
{
    const char *other = NULL;

    watchdog(120, "processes that make a key file at once");
    for (int i = 0; i < ROUNDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d/sub/node.key", i);
        int code = race_run(folder_path(name), no_links);
        if (code == 77) {
            print_message("skipped: link(2) cannot be refused here\n");
            skip();
        }
        assert_int_equal(code, 0);
        snprintf(name, sizeof name, "%d/sub", i);
        assert_int_equal(file_count(folder_path(name), "node.key", &other), files);
        assert_string_equal(other ? other : "", left);
    }
    watchdog(0, NULL);
}

TEST_WITH(one_wins_and_all_read_its_key, folder_make, folder_remove)
{
    race_rounds(false, 1, "");
}

TEST_WITH(also_where_there_are_no_links, folder_make, folder_remove)
{
    race_rounds(true, 2, "node.key.lock");
}

static int load_only(void *arg)
{
    struct node_key *key = NULL;
    return node_key_load(arg, &key, &error) == HEARTH_OK ? 0 : 1;
}

/* Whenever a process is killed, the next one finds a whole file or none. */
TEST_WITH(a_killed_process_does_no_harm, folder_make, folder_remove)
{
    const char *path = folder_path("node.key");
    char leftover[200];

    file_put(folder_path("node.key.tmp-0123456789ab"), "hearth-node-key 1 4c", 20, 0600);
    for (long i = 0; i < KILLED; i++) {
        const struct timespec moment = {.tv_nsec = i * 50000};
        pid_t child = fork_start(load_only, (void *)path);
        (void)nanosleep(&moment, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        int code = fork_end(child);
        assert_true(code == 0 || code == 100 + SIGKILL);
        id_of(path);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(file_get(folder_path("node.key.tmp-0123456789ab"), leftover, sizeof leftover), 20);
}
