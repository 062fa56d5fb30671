/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: versions, files and the clock. */
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"
#include "cli/shared/config_folder.h"
#include "cli/shared/json.h"
#include "core/heap.h"
#include "node/environment.h"
#include "os/clock.h"
#include "os/thread.h"
#include "security/node_key.h"
#include "security/secret.h"
#include "security/trust_list.h"

#define YEAR_MIN   2024
#define PATIENT_NS (10 * NS_PER_S) /* a millisecond does not take so long, unless the clock jumps */

static void check_version(struct doctor *d)
{
    uint32_t ours = HEARTH_VERSION_MAJOR << 16 | HEARTH_VERSION_MINOR << 8 | HEARTH_VERSION_PATCH;
    const char *library = hearth_version_string(), *running = json_text_of(d->status, "version");
    if (hearth_version() != ours)
        doctor_note(d, FAIL, "version",
                    "this command was made for %d.%d.%d, and the library is %s" FIX
                    "install the command and the library of one version",
                    HEARTH_VERSION_MAJOR, HEARTH_VERSION_MINOR, HEARTH_VERSION_PATCH, library);
    else if (running[0] && strcmp(running, library) != 0)
        doctor_note(d, WARN, "version",
                    "this command is %s, and the node that runs here is %s" FIX "restart the node: hearth up",
                    library, running);
    else
        doctor_note(d, PASS, "version", "%s: command and library%s", library,
                    running[0] ? " and the node that runs here" : "");
}

static void check_folder(struct doctor *d)
{
    char path[HOME_PATH_MAX];
    struct stat seen;
    if (!home_folder(path))
        doctor_note(d, FAIL, "folder",
                    "this user has no home, so there is no place for key and secret" FIX
                    "set HOME or XDG_CONFIG_HOME to an absolute path");
    else if (stat(path, &seen) != 0)
        doctor_note(d, PASS, "folder", "%s is not there yet", path);
    else if (!S_ISDIR(seen.st_mode))
        doctor_note(d, FAIL, "folder", "%s is no directory" FIX "move it away", path);
    else if (seen.st_uid != geteuid())
        doctor_note(d, FAIL, "folder", "%s belongs to user %u" FIX "chown %u %s, or set XDG_CONFIG_HOME",
                    path, (unsigned)seen.st_uid, (unsigned)geteuid(), path);
    else if (seen.st_mode & (S_IWGRP | S_IWOTH))
        doctor_note(d, FAIL, "folder",
                    "others can write to %s: they could exchange key and secret" FIX "chmod 700 %s", path,
                    path);
    else
        doctor_note(d, PASS, "folder", "%s", path);
}

/* True: `id` is this node's. */
static bool check_key(struct doctor *d, struct node_id *id)
{
    char path[HOME_PATH_MAX], brief[NODE_ID_SHORT];
    struct node_key *key = NULL;
    struct error error;
    if (d->config.key_file && strcmp(d->config.key_file, "fresh") == 0) {
        doctor_note(d, PASS, "key", "every process has one of its own (HEARTH_KEY_FILE=fresh)");
        return false;
    }
    if (home_key_file(d->usage, NULL, path) != ARGS_GO)
        return false; /* check_folder has said it */
    if (access(path, F_OK) != 0) {
        doctor_note(d, PASS, "key", "%s is not there yet: it is made on first use", path);
        return false;
    }
    if (node_key_read(path, &key, &error)) {
        doctor_note(d, FAIL, "key", "%s" FIX "do what the text says, or move %s away: a new key is made",
                    error.text, path);
        return false;
    }
    *id = *node_key_id(key);
    node_id_short(id, brief);
    doctor_note(d, PASS, "key", "this node is %s (%s)", brief, path);
    node_key_close(key);
    return true;
}

/* True: it comes from the file at `path`, so that there may be a trust list. */
static bool check_secret(struct doctor *d, char path[static HOME_PATH_MAX])
{
    struct secret *secret = NULL;
    struct error error;
    int fd = environment_of(&d->config)->secret_fd, status;
    bool missing = false, file = !d->config.secret && (d->config.secret_file || fd < 0);
    if (d->config.plain) {
        doctor_note(d, WARN, "secret",
                    "HEARTH_PLAIN is set: nothing is encrypted, everyone may come" FIX
                    "unset HEARTH_PLAIN; then hearth init here, hearth join on the others");
        return false;
    }
    if (file && home_secret_file(d->usage, NULL, path) != ARGS_GO)
        return false;
    if (d->config.secret)
        status = secret_parse(d->config.secret, "HEARTH_SECRET", &secret, &error);
    else if (file)
        status = secret_load(path, &secret, &missing, &error);
    else
        status = secret_inherit(fd, &secret, &error);
    if (status == HEARTH_OK)
        doctor_note(d, PASS, "secret", "of the cluster '%s' (%s)", secret_name(secret),
                    file ? path : "from the environment");
    else if (missing)
        doctor_note(d, WARN, "secret",
                    "this machine is in no cluster yet: %s is not there" FIX
                    "hearth init on one machine, hearth join on the others",
                    path);
    else
        doctor_note(d, FAIL, "secret", "%s" FIX "do what the text says, or join again: hearth join --replace",
                    error.text);
    secret_close(secret);
    return status == HEARTH_OK && file;
}

static void check_trust(struct doctor *d, const char *secret_file, const struct node_id *self)
{
    char path[HOME_PATH_MAX];
    struct trust_list *list = NULL;
    struct error error;
    struct heap heap;
    heap_init(&heap, 0);
    if (!home_trust_file(secret_file, path))
        return;
    if (trust_list_open(&heap, path, &list, &error)) {
        doctor_note(d, FAIL, "trust", "%s" FIX "do what the text says, or move %s away", error.text, path);
        return;
    }
    enum trust_verdict verdict = self ? trust_list_judge(list, self) : TRUST_YES;
    int count = trust_list_count(list);
    if (verdict == TRUST_YES)
        doctor_note(d, PASS, "trust", "%d node%s on the list%s", count, count == 1 ? "" : "s",
                    count ? "" : ": every node with the secret may come");
    else
        doctor_note(d, WARN, "trust",
                    "this node itself may not come, by its own list: %s" FIX
                    "hearth trust add, with what hearth id shows, here and wherever there is a list",
                    trust_verdict_text(verdict));
    trust_list_close(list);
}

static void check_clock(struct doctor *d)
{
    uint64_t before = clock_real();
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    uint64_t after = clock_real();
    time_t now = time(NULL);
    struct tm date = {.tm_year = 0};
    char text[32] = "";
    gmtime_r(&now, &date);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &date);
    if (after <= before || after - before > PATIENT_NS)
        doctor_note(d, FAIL, "clock",
                    "the monotonic clock does not go as it should" FIX
                    "restart the machine; in a virtual machine, choose another clock source");
    else if (date.tm_year + 1900 < YEAR_MIN)
        doctor_note(d, WARN, "clock",
                    "it is set to %s; logs of several machines will not fit together" FIX
                    "timedatectl set-ntp true",
                    text);
    else
        doctor_note(d, PASS, "clock", "%s; monotonic clock: ok", text);
}

void doctor_check_machine(struct doctor *doctor)
{
    char secret_file[HOME_PATH_MAX];
    struct node_id self;
    check_version(doctor);
    check_folder(doctor);
    bool known = check_key(doctor, &self);
    if (check_secret(doctor, secret_file))
        check_trust(doctor, secret_file, known ? &self : NULL);
    check_clock(doctor);
}
