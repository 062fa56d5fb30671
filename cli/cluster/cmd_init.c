/* SPDX-License-Identifier: Apache-2.0 */
/* hearth init: makes a cluster's secret, and the token by which others join. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/json.h"
#include "cli/shared/text.h"
#include "security/secret.h"
#include "security/vault.h"

#define WARNING                                                                                              \
    "Whoever has this token is in: show it to nobody, and send it only where nobody else reads along."

struct init {
    const char *cluster, *secret_file; /* as given */
    bool replace, json;
    char path[HOME_PATH_MAX];
};

/* Without repeating it: it may be a token at the wrong place. */
static int check_name(const struct init *init, const struct usage *usage)
{
    static const char frames[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t len = init->cluster ? strlen(init->cluster) : 1;
    if (len == 0 || len >= SECRET_NAME_MAX || (init->cluster && init->cluster[strspn(init->cluster, frames)]))
        return args_refuse(
            usage,
            "this NAME is not accepted: a cluster's name has 1 to %d letters, digits, '-', '_' "
            "or '.'; to take a token from another machine: hearth join",
            SECRET_NAME_MAX - 1);
    return ARGS_GO;
}

static bool print_json(const struct init *init, const struct secret *secret, int argc, char **argv)
{
    char token[SECRET_TOKEN_MAX], place[NAMESPACE_TEXT];
    json_t *doc = doc_open(argc, argv), *row = doc ? doc_row(doc) : NULL;
    if (!doc)
        return false;
    secret_token(secret, token);
    namespace_text(secret_namespace(secret), place);
    row_text(row, "name", "init");
    row_text(row, "cluster", secret_name(secret));
    row_text(row, "namespace", place);
    row_text(row, "secret_file", init->path);
    row_text(row, "token", token);
    wipe(token, sizeof token);
    fprintf(stderr, "%s\n", WARNING);
    return doc_close(doc);
}

static bool print_text(const struct init *init, const struct secret *secret)
{
    const char *bold = paint(stdout, PAINT_BOLD), *none = paint(stdout, PAINT_NONE);
    char token[SECRET_TOKEN_MAX];
    secret_token(secret, token);
    printf("The cluster '%s' has a secret now, in %s\n\n", secret_name(secret), init->path);
    printf("Type this on each of the other machines:\n\n  %shearth join %s%s\n\n", bold, token, none);
    printf("%s\n", WARNING);
    printf("`hearth join` alone asks for the token: then it stands in no history and no process list.\n");
    wipe(token, sizeof token);
    return fflush(stdout) == 0;
}

/* Whoever has the old secret stays together without us. */
static int refuse_existing(const struct init *init, const struct usage *usage)
{
    return command_fail(
        usage->name,
        "there is a secret already, and nothing was changed: %s\nThe file holds the token for "
        "more machines. To begin anew: hearth init --replace, and every machine\nmust join "
        "again.",
        init->path);
}

static int make(const struct init *init, const struct usage *usage, int argc, char **argv)
{
    struct secret *secret = NULL;
    struct error error;
    if (!init->replace && access(init->path, F_OK) == 0)
        return refuse_existing(init, usage);
    int status = secret_draw(init->cluster, &secret, &error);
    if (!status)
        status = secret_store(secret, init->path, init->replace, &error);
    bool good = !status;
    if (!good)
        fprintf(stderr, "hearth %s: %s\n", usage->name, error.text);
    else
        good = init->json ? print_json(init, secret, argc, argv) : print_text(init, secret);
    secret_close(secret);
    if (good && init->replace)
        home_note_trust(usage, init->path);
    return good ? EXIT_GOOD : EXIT_FAILED_CHECK;
}

int cmd_init(int argc, char **argv)
{
    struct init init = {.json = false};
    const struct arg args[] = {
        {"NAME", ARG_WORD, &init.cluster,
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
        "other machines join. Only who has the secret can talk to its members, read along or disturb them.",
        "hearth init home", USAGE_ARGS(args)};
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = check_name(&init, &usage);
    if (code == ARGS_GO)
        code = home_secret_file(&usage, init.secret_file, init.path);
    return code == ARGS_GO ? make(&init, &usage, argc, argv) : code;
}
