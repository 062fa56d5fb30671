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
    const char *running = json_text_of(d->status, "version");
    if (hearth_version() != ours) {
        doctor_note(d, VERDICT_FAIL, "version", "this command was made for %d.%d.%d, and the library is %s",
                    HEARTH_VERSION_MAJOR, HEARTH_VERSION_MINOR, HEARTH_VERSION_PATCH,
                    hearth_version_string());
        doctor_fix(d, "install the command and the library of one version");
    } else if (running[0] && strcmp(running, hearth_version_string()) != 0) {
        doctor_note(d, VERDICT_WARN, "version", "this command is %s, and the node that runs here is %s",
                    hearth_version_string(), running);
        doctor_fix(d, "start the node anew: hearth up");
    } else {
        doctor_note(d, VERDICT_PASS, "version", "%s: command and library%s", hearth_version_string(),
                    running[0] ? " and the node that runs here" : "");
    }
}

static void check_folder(struct doctor *d)
{
    char path[HOME_PATH_MAX];
    struct stat seen;
    if (!home_folder(path)) {
        doctor_note(d, VERDICT_FAIL, "folder",
                    "this user has no home, so there is no place for key and secret");
        doctor_fix(d, "set HOME or XDG_CONFIG_HOME to an absolute path");
        return;
    }
    if (stat(path, &seen) != 0) {
        doctor_note(d, VERDICT_PASS, "folder", "%s is not there yet", path);
        return;
    }
    enum verdict verdict = VERDICT_FAIL;
    if (!S_ISDIR(seen.st_mode)) {
        doctor_note(d, verdict, "folder", "%s is no directory", path);
        doctor_fix(d, "move it away");
    } else if (seen.st_uid != geteuid()) {
        doctor_note(d, verdict, "folder", "%s belongs to user %u", path, (unsigned)seen.st_uid);
        doctor_fix(d, "chown %u %s, or set XDG_CONFIG_HOME", (unsigned)geteuid(), path);
    } else if (seen.st_mode & (S_IWGRP | S_IWOTH)) {
        doctor_note(d, verdict, "folder", "others can write to %s: they could exchange key and secret", path);
        doctor_fix(d, "chmod 700 %s", path);
    } else {
        doctor_note(d, VERDICT_PASS, "folder", "%s", path);
    }
}

/* True: `id` is this node's. */
static bool check_key(struct doctor *d, struct node_id *id)
{
    char path[HOME_PATH_MAX], brief[NODE_ID_SHORT];
    struct node_key *key = NULL;
    struct error error;
    if (d->config.key_file && strcmp(d->config.key_file, "fresh") == 0) {
        doctor_note(d, VERDICT_PASS, "key", "every process has one of its own (HEARTH_KEY_FILE=fresh)");
        return false;
    }
    if (home_key_file(d->usage, NULL, path) != ARGS_GO)
        return false; /* check_folder has said it */
    if (access(path, F_OK) != 0) {
        doctor_note(d, VERDICT_PASS, "key", "%s is not there yet: it is made on first use", path);
        return false;
    }
    if (node_key_read(path, &key, &error)) {
        doctor_note(d, VERDICT_FAIL, "key", "%s", error.text);
        doctor_fix(d, "do what the text says, or move %s away: a new key is made", path);
        return false;
    }
    *id = *node_key_id(key);
    node_id_short(id, brief);
    doctor_note(d, VERDICT_PASS, "key", "this node is %s (%s)", brief, path);
    node_key_close(key);
    return true;
}

/* True: it comes from the file at `path`, so that there may be a trust list. */
static bool check_secret(struct doctor *d, char path[static HOME_PATH_MAX])
{
    struct secret *secret = NULL;
    struct error error;
    bool missing = false,
         file = !d->config.secret && (d->config.secret_file || environment_of(&d->config)->secret_fd < 0);
    int status = HEARTH_INVALID;
    if (d->config.plain) {
        doctor_note(d, VERDICT_WARN, "secret",
                    "HEARTH_PLAIN is set: nothing is encrypted, everyone may come");
        doctor_fix(d, "unset HEARTH_PLAIN; then hearth init here, hearth join on the others");
        return false;
    }
    if (file && home_secret_file(d->usage, NULL, path) != ARGS_GO)
        return false;
    if (d->config.secret)
        status = secret_parse(d->config.secret, "HEARTH_SECRET", &secret, &error);
    else if (file)
        status = secret_load(path, &secret, &missing, &error);
    else
        status = secret_inherit(environment_of(&d->config)->secret_fd, &secret, &error);
    if (status == HEARTH_OK) {
        doctor_note(d, VERDICT_PASS, "secret", "of the cluster '%s' (%s)", secret_name(secret),
                    file ? path : "from the environment");
    } else if (missing) {
        doctor_note(d, VERDICT_WARN, "secret", "this machine is in no cluster yet: %s is not there", path);
        doctor_fix(d, "hearth init on one machine, hearth join on the others");
    } else {
        doctor_note(d, VERDICT_FAIL, "secret", "%s", error.text);
        doctor_fix(d, "do what the text says, or join again: hearth join --replace");
    }
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
        doctor_note(d, VERDICT_FAIL, "trust", "%s", error.text);
        doctor_fix(d, "do what the text says, or move %s away", path);
        return;
    }
    enum trust_verdict verdict = self ? trust_list_judge(list, self) : TRUST_YES;
    if (verdict == TRUST_YES) {
        int count = trust_list_count(list);
        doctor_note(d, VERDICT_PASS, "trust", "%d node%s on the list%s", count, count == 1 ? "" : "s",
                    count ? "" : ": whoever has the secret may come");
    } else {
        doctor_note(d, VERDICT_WARN, "trust", "this node itself may not come, by its own list: %s",
                    trust_verdict_text(verdict));
        doctor_fix(d, "hearth trust add, with what hearth id shows, here and wherever there is a list");
    }
    trust_list_close(list);
}

static void check_clock(struct doctor *d)
{
    uint64_t before = clock_real();
    struct timespec moment = {.tv_nsec = 1000000};
    nanosleep(&moment, NULL);
    uint64_t after = clock_real();
    time_t now = time(NULL);
    struct tm date = {.tm_year = 0};
    char text[32] = "";
    gmtime_r(&now, &date);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &date);
    if (after <= before || after - before > PATIENT_NS) {
        doctor_note(d, VERDICT_FAIL, "clock", "the monotonic clock does not go as it should");
        doctor_fix(d, "restart the machine; in a virtual machine, choose another clock source");
    } else if (date.tm_year + 1900 < YEAR_MIN) {
        doctor_note(d, VERDICT_WARN, "clock",
                    "it is set to %s; logs of several machines will not fit together", text);
        doctor_fix(d, "timedatectl set-ntp true");
    } else {
        doctor_note(d, VERDICT_PASS, "clock", "%s, and the monotonic one goes", text);
    }
}

void doctor_check_files(struct doctor *doctor)
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
