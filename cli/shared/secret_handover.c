/* SPDX-License-Identifier: Apache-2.0 */
/* Which secret the ranks of a job have, and how it reaches them. */
#include "cli/shared/secret_handover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/memory.h"
#include "security/trust_list.h"
#include "security/vault.h"

#define FD_MIN 3 /* the standard ones are the program's */
#define FD_MAX 1000000

bool secret_handover_is_plain(bool plain)
{
    const char *text = env_value("HEARTH_PLAIN");
    return plain || (text && strcmp(text, "1") == 0);
}

/* ---- where it comes from ---- */

/* A file that was named, or what `hearth init` or `hearth join` stored. */
static int from_file(const struct usage *usage, const char *given, struct secret_handover *handover,
                     bool stored)
{
    struct error error;
    bool missing = false;
    int code = home_secret_file(usage, given, handover->file);
    if (code != ARGS_GO)
        return code;
    handover->source = handover->file;
    if (secret_load(handover->file, &handover->secret, &missing, &error) == HEARTH_OK)
        return ARGS_GO;
    if (!missing || !stored)
        return command_fail(usage->name, "%s", error.text);
    return command_fail(
        usage->name,
        "this machine belongs to no cluster yet: there is no %s\n"
        "Try: hearth init NAME, which creates a cluster, or hearth join with the token of one",
        handover->file);
}

static int find_secret(const struct usage *usage, const char *given, struct secret_handover *handover,
                       bool cluster)
{
    const char *text = env_value("HEARTH_SECRET"), *descriptor = env_value("HEARTH_SECRET_FD");
    bool named = given || (!text && env_value("HEARTH_SECRET_FILE"));
    struct error error;
    int64_t fd = -1;
    int status;
    if (named || (!text && !descriptor && cluster))
        return from_file(usage, given, handover, !named);
    if (text) {
        handover->source = "of HEARTH_SECRET";
        status = secret_parse(text, "HEARTH_SECRET", &handover->secret, &error);
    } else if (!descriptor) {
        handover->source = "of this job only";
        status = secret_draw(NULL, &handover->secret, &error);
        return status ? command_fail(usage->name, "%s", error.text) : ARGS_GO;
    } else if (args_int(descriptor, FD_MIN, FD_MAX, &fd)) {
        handover->source = "of HEARTH_SECRET_FD";
        status = secret_read_fd((int)fd, &handover->secret, &error);
        if (!status)
            close((int)fd);
    } else {
        return args_refuse(usage,
                           "HEARTH_SECRET_FD is '%.16s'; it takes the number of an open descriptor, from %d",
                           descriptor, FD_MIN);
    }
    if (status)
        return args_refuse(usage, "%s%s", text ? "" : "HEARTH_SECRET_FD: ", error.text);
    return ARGS_GO;
}

/* The system shows a process's first environment for as long as it lives, so the text is wiped too. */
static void take_variables_away(void)
{
    char *text = env_value("HEARTH_SECRET");
    if (text)
        wipe(text, strlen(text));
    unsetenv("HEARTH_SECRET");
    unsetenv("HEARTH_SECRET_FILE");
    unsetenv("HEARTH_SECRET_FD");
}

int secret_handover_settle(const struct usage *usage, const char *given, bool plain,
                           struct secret_handover *handover)
{
    *handover = (struct secret_handover){.plain = secret_handover_is_plain(plain),
                                         .fresh_keys = !env_value("HEARTH_KEY_FILE")};
    if (handover->plain && given)
        return args_refuse(usage, "plain connections have no secret: leave out --plain (or HEARTH_PLAIN), or "
                                  "--secret-file");
    int code = handover->plain ? ARGS_GO : find_secret(usage, given, handover, false);
    take_variables_away();
    return code;
}

int secret_handover_of_cluster(const struct usage *usage, struct secret_handover *handover)
{
    *handover = (struct secret_handover){.plain = secret_handover_is_plain(false)};
    if (handover->plain)
        return args_refuse(usage, "a home cluster is always encrypted: unset HEARTH_PLAIN");
    int code = find_secret(usage, NULL, handover, true);
    take_variables_away();
    return code;
}

void secret_handover_close(struct secret_handover *handover)
{
    secret_close(handover->secret);
    handover->secret = NULL;
}

/* ---- the list beside it ---- */

static int judge_list(const struct usage *usage, const struct secret_handover *handover,
                      const struct trust_list *list, bool elsewhere)
{
    bool allows = false;
    for (int i = 0; i < trust_list_count(list); i++)
        allows = allows || !trust_list_entry(list, i)->revoked;
    if (allows && handover->fresh_keys)
        return args_refuse(
            usage,
            "the trust list beside %s allows only the nodes on it, and ranks have fresh keys, which are "
            "not on it; set HEARTH_KEY_FILE to the file of an allowed key, or give the job a secret of "
            "its own",
            handover->file);
    if (elsewhere && trust_list_count(list) > 0)
        fprintf(stderr, "hearth %s: the trust list beside %s is known to the ranks of this machine only\n",
                usage->name, handover->file);
    return ARGS_GO;
}

int secret_handover_check_trust(const struct usage *usage, const struct secret_handover *handover,
                                bool elsewhere)
{
    char path[HOME_PATH_MAX];
    struct trust_list *list = NULL;
    struct error error;
    if (!handover->file[0])
        return ARGS_GO;
    struct heap *heap = home_trust_file(handover->file, path) ? heap_open(0) : NULL;
    if (!heap)
        return command_fail(usage->name, "no memory, or the path of the secret is too long");
    int code = trust_list_open(heap, path, &list, &error) ? command_fail(usage->name, "%s", error.text)
                                                          : judge_list(usage, handover, list, elsewhere);
    trust_list_close(list);
    heap_close(heap);
    return code;
}

/* ---- for this process ---- */

static bool export_secret(const struct secret *secret)
{
    char token[SECRET_TOKEN_MAX], number[16];
    int fd;
    secret_token(secret, token);
    int status = memory_file_make(token, strlen(token), &fd);
    wipe(token, sizeof token);
    if (status)
        return false;
    snprintf(number, sizeof number, "%d", fd); /* open as long as we are */
    return setenv("HEARTH_SECRET_FD", number, 1) == 0 &&
           setenv("HEARTH_KEY_FILE", "fresh", !env_value("HEARTH_KEY_FILE")) == 0;
}

bool secret_handover_here(const char *command, bool plain)
{
    struct secret *secret = NULL;
    struct error error;
    bool good = true;
    if (plain) {
        good = setenv("HEARTH_PLAIN", "1", 1) == 0;
    } else if (!secret_handover_is_plain(false) && !env_value("HEARTH_SECRET") &&
               !env_value("HEARTH_SECRET_FILE") && !env_value("HEARTH_SECRET_FD")) {
        take_variables_away(); /* the library takes one that is empty for a mistake */
        good = secret_draw(NULL, &secret, &error) == HEARTH_OK && export_secret(secret);
        secret_close(secret);
    }
    if (!good)
        fprintf(stderr, "hearth %s: no memory, descriptor or random numbers for a secret\n", command);
    return good;
}
