/* SPDX-License-Identifier: Apache-2.0 */
/* Where a user's key, cluster secret and trust list lie, unless told otherwise. */
#include "cli/shared/config_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/host.h"

#define KEY_LEAF    "node.key"
#define SECRET_LEAF "cluster"
#define TRUST_TAIL  ".trust"

char *env_value(const char *name)
{
    char *text = getenv(name);
    return text && text[0] ? text : NULL;
}

static bool fits(int len)
{
    return len >= 0 && len < HOME_PATH_MAX;
}

bool home_folder(char path[static HOME_PATH_MAX])
{
    const char *config = env_value("XDG_CONFIG_HOME"), *home = env_value("HOME");
    char listed[HOME_PATH_MAX];
    if ((!home || home[0] != '/') && host_home(listed, sizeof listed))
        home = listed;
    if (config && config[0] == '/') /* by its specification others do not count */
        return fits(snprintf(path, HOME_PATH_MAX, "%s/hearth", config));
    return home && home[0] == '/' && fits(snprintf(path, HOME_PATH_MAX, "%s/.config/hearth", home));
}

/* As given, but absolute: a relative path would mean another file in each directory; else the standard. */
static int settle(const struct usage *usage, const char *given, const char *leaf, const char *flag,
                  char *path)
{
    char folder[HOME_PATH_MAX] = "";
    bool known = given ? given[0] == '/' || getcwd(folder, sizeof folder) : home_folder(folder);
    if (known &&
        fits(snprintf(path, HOME_PATH_MAX, "%s%s%s", folder, folder[0] ? "/" : "", given ? given : leaf)))
        return ARGS_GO;
    if (given)
        return args_refuse(usage, "the path '%.64s...' is too long, or the current directory is unknown",
                           given);
    return args_refuse(
        usage,
        "no directory for the file '%s': this user has no home, and neither XDG_CONFIG_HOME nor HOME "
        "is an absolute path; set HOME, or name a file with --%s",
        leaf, flag);
}

int home_key_file(const struct usage *usage, const char *given, char path[static HOME_PATH_MAX])
{
    const char *set = given ? given : env_value("HEARTH_KEY_FILE");
    if (!given && set && strcmp(set, "fresh") == 0)
        return args_refuse(usage, "HEARTH_KEY_FILE is 'fresh': each process makes its own key in memory, so "
                                  "there is no key file; name one with --key-file, or unset the variable");
    return settle(usage, set, KEY_LEAF, "key-file", path);
}

int home_secret_file(const struct usage *usage, const char *given, char path[static HOME_PATH_MAX])
{
    return settle(usage, given ? given : env_value("HEARTH_SECRET_FILE"), SECRET_LEAF, "secret-file", path);
}

bool home_trust_file(const char *secret_file, char path[static HOME_PATH_MAX])
{
    return fits(snprintf(path, HOME_PATH_MAX, "%s" TRUST_TAIL, secret_file));
}

void home_note_trust(const struct usage *usage, const char *secret_file)
{
    char path[HOME_PATH_MAX];
    if (home_trust_file(secret_file, path) && access(path, F_OK) == 0)
        fprintf(stderr, "hearth %s: the existing trust list stays in force (hearth trust list): %s\n",
                usage->name, path);
}
