/* SPDX-License-Identifier: Apache-2.0 */
/* hearth trust: which nodes may come, beside having the secret. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cluster/node_query.h"
#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/listing.h"
#include "security/trust_list.h"

struct trust {
    const char *id_text, *label, *secret_file; /* as given */
    bool json;
    char secret_path[HOME_PATH_MAX], path[HOME_PATH_MAX];
    struct heap heap;
    struct trust_list *list;
    int argc;
    char **argv;
};

/* ---- the list ---- */

struct trust_tally {
    int allowed, revoked;
};

static struct trust_tally count(const struct trust_list *list)
{
    struct trust_tally tally = {0, 0};
    for (int i = 0; i < trust_list_count(list); i++) {
        bool revoked = trust_list_entry(list, i)->revoked;
        tally.revoked += revoked;
        tally.allowed += !revoked;
    }
    return tally;
}

static bool is_listed(const struct trust_list *list, const struct node_id *id)
{
    for (int i = 0; i < trust_list_count(list); i++) {
        if (node_id_equal(&trust_list_entry(list, i)->id, id))
            return true;
    }
    return false;
}

/* ---- showing ---- */

static void explain(struct trust_tally tally)
{
    if (tally.allowed)
        printf("Only allowed nodes may join: an allow-list is in force.%s\n",
               tally.revoked ? " Revoked ones never may." : "");
    else if (tally.revoked)
        printf("Every node with the secret may join, except revoked ones: no allow-list is in force.\n");
    else
        printf("Every node with the secret may join: the list is empty.\n");
}

static int show(const struct trust *trust)
{
    struct listing listing = {.columns = NULL};
    struct trust_tally tally = count(trust->list);
    int entries = trust_list_count(trust->list);
    if (!listing_open(&listing, trust->json, trust->argc, trust->argv))
        return EXIT_FAILED_CHECK;
    if (trust->json)
        listing_row(&listing, json_pack("{ss so sb si si}", "name", "trust.list", "file",
                                        json_text(trust->path), "allow_list", tally.allowed > 0, "allowed",
                                        tally.allowed, "revoked", tally.revoked));
    for (int i = 0; i < entries; i++) {
        const struct trust_entry *entry = trust_list_entry(trust->list, i);
        const char *state = entry->revoked ? "revoked" : "allowed";
        char text[NODE_ID_TEXT], brief[NODE_ID_SHORT];
        node_id_text(&entry->id, text);
        node_id_short(&entry->id, brief);
        if (trust->json)
            listing_row(&listing,
                        json_pack("{ss ss ss ss so}", "name", "trust.entry", "state", state, "short", brief,
                                  "node_id", text, "label", json_text(entry->name)));
        else
            printf("%s  %s  %s  %s\n", state, brief, text, entry->name);
    }
    if (trust->json)
        return listing_close(&listing, EXIT_GOOD);
    if (entries > 0)
        putchar('\n');
    explain(tally);
    printf("File: %s\n", trust->path);
    return print_done();
}

/* A change may do more than it says: the first allowed node shuts all others out, the last that goes lets
 * them in again. */
static void warn_of_turn(const struct usage *usage, struct trust_tally before, struct trust_tally after)
{
    if (!before.allowed && after.allowed)
        command_fail(
            usage->name,
            "from now on only allowed nodes may join. Allow every other one too (what `hearth id` shows "
            "there),\nand this one, if several programs of this machine are to meet");
    if (before.allowed && !after.allowed)
        command_fail(
            usage->name,
            "no allowed node is left, so the allow-list is off: every node with the secret may "
            "join,\nexcept revoked ones. A node that knew the secret can come back with a new key: make a "
            "new secret\n(hearth init --replace), or allow the good ones (hearth trust add)");
}

/* ---- changes ---- */

/* By its id, its short form or its name: as the list has them, and the node that runs here, if it is about
 * the same secret. */
static int find_named(const struct trust *trust, const struct usage *usage, struct named_node *found)
{
    json_t *status = NULL;
    int code = trust->secret_file ? EXIT_NO_NODE : ask_node(usage, &status);
    if (code == ARGS_GO || code == EXIT_NO_NODE)
        code = node_find(usage, trust->id_text, trust->list, status, found);
    json_decref(status);
    return code;
}

static int change(struct trust *trust, const struct usage *usage, const struct node_id *id,
                  const struct trust_entry *entry)
{
    struct error error;
    struct trust_tally before = count(trust->list);
    if (trust_list_set(trust->list, id, entry, &error))
        return command_fail(usage->name, "%s", error.text);
    warn_of_turn(usage, before, count(trust->list));
    return show(trust);
}

static bool has_control(const char *text)
{
    while (*text && !iscntrl((unsigned char)*text))
        text++;
    return *text;
}

static int set_entry(struct trust *trust, const struct usage *usage, bool revoked)
{
    struct named_node found = {.name = ""};
    int code = find_named(trust, usage, &found);
    const char *label = trust->label ? trust->label : found.name;
    struct trust_entry entry = {.revoked = revoked, .id = found.id};
    if (code == ARGS_GO && strlen(label) >= sizeof entry.name)
        code = args_refuse(usage, "NAME is longer than %zu characters", sizeof entry.name - 1);
    if (code == ARGS_GO && has_control(label))
        code = args_refuse(usage, "NAME has a character that cannot be shown, like the end of a line");
    if (code == ARGS_GO && access(trust->secret_path, F_OK) != 0)
        code = command_fail(usage->name,
                            "there is no cluster secret, so no node would read this list: %s\nFirst: hearth "
                            "init, or hearth join; or name another with --secret-file",
                            trust->secret_path);
    if (code != ARGS_GO)
        return code;
    snprintf(entry.name, sizeof entry.name, "%s", label);
    return change(trust, usage, &entry.id, &entry);
}

static int trust_add(struct trust *trust, const struct usage *usage)
{
    return set_entry(trust, usage, false);
}

static int trust_remove(struct trust *trust, const struct usage *usage)
{
    return set_entry(trust, usage, true);
}

static int trust_forget(struct trust *trust, const struct usage *usage)
{
    struct named_node found;
    int code = find_named(trust, usage, &found);
    if (code != ARGS_GO)
        return code;
    if (!is_listed(trust->list, &found.id))
        return command_fail(usage->name, "this node is not on the list: %s", trust->path);
    return change(trust, usage, &found.id, NULL);
}

static int trust_show(struct trust *trust, const struct usage *usage)
{
    if (access(trust->secret_path, F_OK) != 0)
        fprintf(stderr, "hearth %s: there is no cluster secret yet (hearth init, hearth join): %s\n",
                usage->name, trust->secret_path);
    return show(trust);
}

/* ---- the commands ---- */

static const struct trust_command {
    const char *name, *full_name;
    int (*run)(struct trust *trust, const struct usage *usage);
    size_t words; /* it takes */
    const char *brief, *about, *example;
} deeds[] = {
    {"list", "trust list", trust_show, 0, "lists allowed and revoked nodes",
     "Shows which nodes are allowed or revoked, and whether there is an allow-list in force. Without an "
     "allowed node every node with the secret may join; with one or more, only those.",
     "hearth trust list"},
    {"add", "trust add", trust_add, 2, "allows a node; from the first on, only allowed nodes may join",
     "Allows a node. From the first allowed node on only those of the list may join: the others are shut out "
     "within a second, also when they are connected. A revoked node is allowed again by it.",
     "hearth trust add 3f0c9a4be1d27586a90b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f607 workstation"},
    {"remove", "trust remove", trust_remove, 1, "revokes a node: it is shut out at once, and stays out",
     "Revokes a node: its connections end within a second, and it never may join again. It still knows the "
     "secret, and could come with a new key: an allow-list, or a new secret (hearth init --replace), "
     "prevents that.",
     "hearth trust remove shelf"},
    {"forget", "trust forget", trust_forget, 1, "takes a node out of the list, allowed or revoked",
     "Takes a node out of the list, as if it had never been on it.", "hearth trust forget shelf"},
};
#define DEEDS (sizeof deeds / sizeof *deeds)

static int open_list(struct trust *trust, const struct usage *usage)
{
    struct error error;
    int code = home_secret_file(usage, trust->secret_file, trust->secret_path);
    if (code != ARGS_GO)
        return code;
    if (!home_trust_file(trust->secret_path, trust->path))
        return args_refuse(usage, "the path of the secret file is too long");
    heap_init(&trust->heap, 0);
    return trust_list_open(&trust->heap, trust->path, &trust->list, &error)
               ? command_fail(usage->name, "%s", error.text)
               : ARGS_GO;
}

static int run_deed(int argc, char **argv)
{
    const struct trust_command *deed = deeds;
    while (strcmp(deed->name, argv[1]) != 0)
        deed++;
    struct trust trust = {.argc = argc, .argv = argv};
    struct arg args[] = {
        {"NODE", ARG_WORD, &trust.id_text, .min = 1,
         .about = "the node: its id (`hearth id` shows it there), or short form or name as in hearth status"},
        {"NAME", ARG_WORD, &trust.label, .about = "for people"},
        {"secret-file", ARG_TEXT, &trust.secret_file, .value_name = "FILE",
         .about = "of the cluster; the list lies beside it, as FILE.trust " HOME_SECRET_ABOUT},
        {"json", ARG_FLAG, &trust.json, .about = "print one JSON object, with the whole list"},
    };
    if (deed->words == 1)
        args[1] = args[0];
    const struct usage usage = {deed->full_name, deed->about, deed->example, .args = args + 2 - deed->words,
                                .count = 2 + deed->words};
    int code = args_parse(&usage, argc - 1, argv + 1);
    if (code == ARGS_GO)
        code = open_list(&trust, &usage);
    if (code == ARGS_GO)
        code = deed->run(&trust, &usage);
    trust_list_close(trust.list);
    return code;
}

int cmd_trust(int argc, char **argv)
{
    struct subcommand list[DEEDS];
    const struct subcommand_list all = {
        " trust", "trust command",
        "Which nodes may come, beside having the cluster's secret. Members look at the list all the\n"
        "time: a change is effective within a second, also on connections that are there.",
        list, DEEDS};
    for (size_t i = 0; i < DEEDS; i++)
        list[i] = (struct subcommand){deeds[i].name, run_deed, deeds[i].brief, deeds[i].example};
    return subcommand_run(&all, argc, argv);
}
