/* SPDX-License-Identifier: Apache-2.0 */
/* hearth id, init and join: who this node is, and the secret of its cluster. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/listing.h"
#include "cli/shared/signals.h"
#include "security/node_key.h"
#include "security/secret.h"
#include "security/vault.h"

#define NODE_ID_DIGITS 64
#define WARNING                                                                                              \
    "This token lets any machine join the cluster: keep it secret, and send it only over private channels."

/* What the user says of a secret, and where it lies. */
struct secret_args {
    const char *word, *secret_file; /* word: the cluster's name, or the token */
    bool replace, json;
    char path[HOME_PATH_MAX];
};

/* ---- id ---- */

int cmd_id(int argc, char **argv)
{
    const char *key_file = NULL;
    bool json = false;
    const struct arg args[] = {
        {"key-file", ARG_TEXT, &key_file, .value_name = "FILE",
         .about = "the key (default: HEARTH_KEY_FILE, else node.key in $XDG_CONFIG_HOME/hearth or "
                  "~/.config/hearth)"},
        {"json", ARG_FLAG, &json, .about = "print one JSON object"},
    };
    const struct usage usage = {
        "id",
        "Shows the identity of this node: its id is the hash of its public key. The key is made on first "
        "use. The id is no secret: the other machines' `hearth trust add` takes it. The key file is one: "
        "never copy it to another machine.",
        "hearth id", USAGE_ARGS(args)};
    char path[HOME_PATH_MAX], text[NODE_ID_TEXT], brief[NODE_ID_SHORT];
    struct node_key *key = NULL;
    struct error error;
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = home_key_file(&usage, key_file, path);
    if (code != ARGS_GO)
        return code;
    bool new = access(path, F_OK) != 0;
    if (node_key_load(path, &key, &error))
        return command_fail("id", "%s", error.text);
    node_id_text(node_key_id(key), text);
    node_id_short(node_key_id(key), brief);
    node_key_close(key);
    if (json)
        return listing_one(argc, argv,
                           json_pack("{ss ss ss so sb}", "name", "id", "short", brief, "node_id", text,
                                     "key_file", json_text(path), "new", new));
    printf("short form  %s\nnode id     %s\nkey file    %s%s\n", brief, text, path,
           new ? " (made just now)" : "");
    return print_done();
}

/* ---- init ---- */

static int show_secret(const struct secret_args *init, const struct secret *secret, int argc, char **argv)
{
    const char *bold = paint(stdout, PAINT_BOLD), *none = paint(stdout, PAINT_NONE);
    char token[SECRET_TOKEN_MAX], place[NAMESPACE_TEXT];
    int code;
    secret_token(secret, token);
    namespace_text(secret_namespace(secret), place);
    if (init->json) {
        fprintf(stderr, "%s\n", WARNING);
        code =
            listing_one(argc, argv,
                        json_pack("{ss ss ss so ss}", "name", "init", "cluster", secret_name(secret),
                                  "namespace", place, "secret_file", json_text(init->path), "token", token));
    } else {
        printf("The cluster '%s' has a secret now, in %s\n\n", secret_name(secret), init->path);
        printf("Type this on each of the other machines:\n\n  %shearth join %s%s\n\n", bold, token, none);
        printf("%s\n", WARNING);
        printf("`hearth join` alone asks for the token: then it stands in no history and no process list.\n");
        code = print_done();
    }
    wipe(token, sizeof token);
    return code;
}

enum place { PLACE_FREE, PLACE_SECRET, PLACE_OTHER };

/* What stands at the path. Others may be allowed to read it: a new file takes that away. */
static enum place look_at(const char *path)
{
    struct secret *secret = NULL;
    struct error error;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) /* ENOTDIR: storing says it better */
        return errno == ENOENT || errno == ENOTDIR ? PLACE_FREE : PLACE_OTHER;
    enum place place = secret_read_fd(fd, &secret, &error) ? PLACE_OTHER : PLACE_SECRET;
    secret_close(secret);
    close(fd);
    return place;
}

static int refuse_other(const struct usage *usage, const char *path)
{
    return command_fail(usage->name,
                        "%s is not a secret that can be read, and nothing was changed: move it away, or name "
                        "another file with --secret-file",
                        path);
}

static int make_secret(const struct secret_args *init, const struct usage *usage, int argc, char **argv)
{
    struct secret *secret = NULL;
    struct error error;
    enum place place = look_at(init->path);
    if (place == PLACE_OTHER)
        return refuse_other(usage, init->path);
    if (!init->replace && place == PLACE_SECRET)
        return command_fail(usage->name,
                            "there is a secret already, and nothing was changed: %s\nThe file holds the "
                            "token for more machines. To start over: hearth init --replace, and every "
                            "machine\nmust join again.",
                            init->path); /* those that have the old secret stay together without us */
    int status = secret_draw(init->word, &secret, &error);
    if (status == HEARTH_INVALID)
        return args_refuse(usage, "%s; to take a token from another machine: hearth join", error.text);
    if (!status)
        status = secret_store(secret, init->path, init->replace, &error);
    int code = status ? command_fail(usage->name, "%s", error.text) : show_secret(init, secret, argc, argv);
    secret_close(secret);
    if (code == EXIT_GOOD && init->replace)
        home_note_trust(usage, init->path);
    return code;
}

int cmd_init(int argc, char **argv)
{
    struct secret_args init = {.json = false};
    const struct arg args[] = {
        {"NAME", ARG_WORD, &init.word,
         .about = "of the cluster, for people: up to 32 letters, digits, '-', '_', '.' (default hearth)"},
        {"replace", ARG_FLAG, &init.replace,
         .about = "a new secret takes the place of one that is there; every machine must join again"},
        {"secret-file", ARG_TEXT, &init.secret_file, .value_name = "FILE",
         .about = "where to " HOME_SECRET_ABOUT},
        {"json", ARG_FLAG, &init.json, .about = "print one JSON object, with the token"},
    };
    const struct usage usage = {
        "init",
        "Makes the secret of a new cluster, stores it for this user, and prints the token with which the "
        "other machines join. Only nodes that have the secret can talk to its members, read along or disturb "
        "them.",
        "hearth init home", USAGE_ARGS(args)};
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = home_secret_file(&usage, init.secret_file, init.path);
    return code == ARGS_GO ? make_secret(&init, &usage, argc, argv) : code;
}

/* ---- the token, unseen ---- */

#define ASK_MAX 512 /* with the final 0 */

enum ask { ASK_GOOD, ASK_NOTHING, ASK_TOO_LONG, ASK_FAILED };

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

/* The caller wipes the text, whatever came of it. A signal that ends us finds the terminal as it was. */
static enum ask ask_hidden(const char *question, char text[static ASK_MAX])
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

/* ---- join ---- */

/* So that a list of processes does not show it longer than it must. The word is argv's, ours to change. */
static void hide_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i] == word)
            wipe(argv[i], strlen(argv[i]));
    }
}

/* 64 digits could be a secret too, but are most often a node's id, which everybody may know. */
static bool is_bare_digits(const char *text)
{
    size_t lead = strspn(text, " \t\r\n"), len = strspn(text + lead, "0123456789abcdefABCDEF");
    return len == NODE_ID_DIGITS && !text[lead + len + strspn(text + lead + len, " \t\r\n")];
}

static int parse(const struct usage *usage, const char *text, const char *what, struct secret **secret)
{
    struct error error;
    if (is_bare_digits(text))
        return args_refuse(
            usage, "%s has 64 digits, like a node's id, and is no token; a token begins with hearth1-", what);
    return secret_parse(text, what, secret, &error) ? args_refuse(usage, "%s", error.text) : ARGS_GO;
}

static int read_token(struct secret_args *join, const struct usage *usage, int argc, char **argv,
                      struct secret **secret)
{
    char text[ASK_MAX];
    if (join->word && strcmp(join->word, "-") != 0) {
        int code = parse(usage, join->word, "TOKEN", secret);
        hide_word(argc, argv, join->word);
        return code;
    }
    int code = EXIT_FAILED_CHECK;
    switch (ask_hidden("Token: ", text)) {
    case ASK_GOOD:
        code = parse(usage, text, "what came on standard input", secret);
        break;
    case ASK_NOTHING:
        code = args_refuse(usage, "there is no token on standard input");
        break;
    case ASK_TOO_LONG:
        code = args_refuse(usage, "what came on standard input is too long for a token");
        break;
    case ASK_FAILED:
        code = command_fail(usage->name, "standard input cannot be read");
        break;
    }
    wipe(text, sizeof text);
    return code;
}

/* What is there now. ARGS_GO: the new one may be stored. */
static int check_existing(const struct secret_args *join, const struct usage *usage,
                          const struct secret *secret)
{
    struct secret *have = NULL;
    struct error error;
    bool missing = false;
    int code = ARGS_GO;
    if (secret_load(join->path, &have, &missing, &error)) {
        if (!missing && !join->replace)
            return command_fail(usage->name, "%s", error.text);
        return look_at(join->path) == PLACE_OTHER ? refuse_other(usage, join->path) : ARGS_GO;
    }
    if (memcmp(secret_bytes(have), secret_bytes(secret), SECRET_LEN) == 0) {
        printf("This user has joined the cluster '%s' already; nothing changes: %s\n", secret_name(have),
               join->path);
        code = print_done();
    } else if (!join->replace) {
        code = command_fail(usage->name,
                            "this user is in another cluster, '%s': %s\nTo leave that one for '%s': hearth "
                            "join --replace; to be in both: --secret-file FILE, and "
                            "HEARTH_SECRET_FILE=FILE\nfor programs of the second.",
                            secret_name(have), join->path, secret_name(secret));
    }
    secret_close(have);
    return code;
}

static int store(const struct secret_args *join, const struct usage *usage, const struct secret *secret)
{
    struct error error;
    int code = check_existing(join, usage, secret);
    if (code != ARGS_GO)
        return code;
    if (secret_store(secret, join->path, join->replace, &error))
        return command_fail(usage->name, "%s", error.text);
    printf("Joined the cluster '%s'; its secret is in %s\n", secret_name(secret), join->path);
    if (join->replace)
        home_note_trust(usage, join->path);
    return print_done();
}

int cmd_join(int argc, char **argv)
{
    struct secret_args join = {.json = false};
    const struct arg args[] = {
        {"TOKEN", ARG_WORD, &join.word,
         .about = "as hearth init has printed it; - or nothing: it is read from standard input, unseen"},
        {"replace", ARG_FLAG, &join.replace, .about = "leave the cluster that this user is in"},
        {"secret-file", ARG_TEXT, &join.secret_file, .value_name = "FILE",
         .about = "where to " HOME_SECRET_ABOUT},
    };
    const struct usage usage = {
        "join",
        "Stores the secret of a cluster that `hearth init` has made on another machine. Without TOKEN it "
        "asks for it, so that it stands neither in the shell's history nor in a list of processes.",
        "hearth join", USAGE_ARGS(args)};
    struct secret *secret = NULL;
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = home_secret_file(&usage, join.secret_file, join.path);
    if (code == ARGS_GO)
        code = read_token(&join, &usage, argc, argv, &secret);
    if (code == ARGS_GO)
        code = store(&join, &usage, secret);
    secret_close(secret);
    return code;
}
