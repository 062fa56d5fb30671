/* SPDX-License-Identifier: Apache-2.0 */
/* From a config to credentials. Memory with a secret is wiped; none of it is copied to the node's heap. */
#include "node/secure.h"

#include <stdio.h>
#include <string.h>

#include "node/environment.h"
#include "os/host.h"
#include "security/vault.h"

#define PATH_TEXT_MAX SECURE_PATH_MAX
#define WATCH_NS      (500 * NS_PER_MS) /* interval of trust list checks */

bool secure_meets_privately(const struct opening *o)
{
    return !o->peers && o->own.rendezvous && strncmp(o->own.rendezvous, "unix:", 5) == 0;
}

static bool needs_none(const struct opening *o)
{
    return o->own.plain || (o->size == 1 && o->discover == DISCOVER_NOT);
}

/* ---- paths ---- */

static int path_in_folder(const struct opening *o, const char *name, char path[static PATH_TEXT_MAX],
                          struct error *error)
{
    char home[PATH_TEXT_MAX];
    int len;
    const struct hearth_environment *found = environment_of(&o->own);
    if (found->folder[0] != '\0')
        len = snprintf(path, PATH_TEXT_MAX, "%s/%s", found->folder, name);
    else if (host_home(home, sizeof home))
        len = snprintf(path, PATH_TEXT_MAX, "%s/.config/hearth/%s", home, name);
    else
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: there is no folder for %s: this user has no home; set HOME, or give the file "
                         "(HEARTH_KEY_FILE, HEARTH_SECRET_FILE)",
                         name);
    if (len >= PATH_TEXT_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open: the path of %s is too long", name);
    return HEARTH_OK;
}

/* The trust list is beside the file of the secret. */
static int find_trust(struct opening *o, const char *secret_path, struct error *error)
{
    char path[PATH_TEXT_MAX];
    if (snprintf(path, sizeof path, "%s.trust", secret_path) >= (int)sizeof path)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open: the path of the secret is too long");
    return trust_list_open(o->heap, path, &o->trust, error);
}

static int load_secret(struct opening *o, const char *path, bool *missing, struct error *error)
{
    int status = secret_load(path, &o->secret, missing, error);
    return status == HEARTH_OK ? find_trust(o, path, error) : status;
}

/* The trust list in the config folder belongs to the stored secret. It holds for a secret from another
 * source, too, unless a different one is stored there: then it is the list of another cluster. */
static int find_trust_of_folder(struct opening *o, struct error *error)
{
    char path[PATH_TEXT_MAX];
    struct secret *stored = NULL;
    struct error why;
    bool missing;
    if (path_in_folder(o, "cluster", path, &why) != HEARTH_OK)
        return HEARTH_OK;
    bool other = secret_load(path, &stored, &missing, &why) == HEARTH_OK &&
                 memcmp(secret_namespace(stored), secret_namespace(o->secret), NAMESPACE_LEN) != 0;
    secret_close(stored);
    if (!other)
        return find_trust(o, path, error);
    log_write(&o->log, HEARTH_LOG_DEBUG, "HEARTH-TRUST-FILE", "%s.trust is the list of another secret", path);
    return HEARTH_OK;
}

static int none_here(struct error *error)
{
    return error_set(
        error, HEARTH_INVALID, RANK_NONE,
        "open: members need the cluster's secret, and there is none here. On one machine: hearth "
        "init; on the others: hearth join TOKEN, with the token that it prints. (Without any "
        "encryption: plain, HEARTH_PLAIN=1, --plain.)");
}

/* ---- on one machine ---- */

/* All addresses are of this machine. */
static bool peers_are_here(const struct opening *o)
{
    struct sock_addr addr;
    for (int i = 0; o->peers && i < o->size; i++) {
        size_t len = strcspn(o->peers[i], ":");
        bool named = len == strlen("localhost") && strncmp(o->peers[i], "localhost", len) == 0;
        if (!named && (sock_addr_parse(o->peers[i], 1, &addr) != HEARTH_OK || !sock_addr_loopback(&addr)))
            return false;
    }
    return o->peers;
}

/* A secret of this user, in a file that other users cannot read: keeps their processes out. The first process
 * creates it. */
static int user_secret(struct opening *o, struct error *error)
{
    char path[PATH_TEXT_MAX];
    bool missing = false;
    int status = path_in_folder(o, "loopback", path, error);
    if (status == HEARTH_OK)
        status = secret_load(path, &o->secret, &missing, error);
    if (status == HEARTH_OK || !missing)
        return status;
    struct secret *drawn = NULL;
    status = secret_draw("loopback", &drawn, error);
    if (status == HEARTH_OK)
        status = secret_store(drawn, path, false, error);
    secret_close(drawn);
    struct error again;
    if (secret_load(path, &o->secret, &missing, &again) == HEARTH_OK) /* ours, or that of a faster process */
        return HEARTH_OK;
    return status != HEARTH_OK ? status : error_set(error, again.status, RANK_NONE, "%s", again.text);
}

/* A program between the launcher and this process may have closed it, as Python's subprocess does. */
static int inherit_secret(struct opening *o, struct error *error)
{
    struct error why;
    int status = secret_inherit(environment_of(&o->own)->secret_fd, &o->secret, &why);
    if (status == HEARTH_OK)
        return status;
    return error_set(error, status, RANK_NONE,
                     "open: the launcher's secret (HEARTH_SECRET_FD) did not reach this process: %s. Its "
                     "parent must pass that descriptor on (Python: pass_fds or close_fds=False)",
                     why.text);
}

static int find_secret(struct opening *o, struct error *error)
{
    const struct hearth_config *c = &o->own;
    char path[PATH_TEXT_MAX];
    bool missing = false;
    int status;
    if (!c->secret && c->secret_file)
        return load_secret(o, c->secret_file, &missing, error);
    if (c->secret || environment_of(c)->secret_fd >= 0) {
        status = c->secret ? secret_parse(c->secret, "secret (HEARTH_SECRET)", &o->secret, error)
                           : inherit_secret(o, error);
        return status == HEARTH_OK ? find_trust_of_folder(o, error) : status;
    }
    status = path_in_folder(o, "cluster", path, error);
    if (status == HEARTH_OK)
        status = load_secret(o, path, &missing, error);
    if (status == HEARTH_OK || (!missing && !secure_meets_privately(o)))
        return status;
    if (peers_are_here(o))
        return user_secret(o, error);
    if (!secure_meets_privately(o))
        return none_here(error);
    if (!missing) /* an unusable file, or no home: not needed here */
        log_write(&o->log, HEARTH_LOG_INFO, "HEARTH-NO-SECRET", "%s", error->text);
    o->drawn = true;
    return secret_draw("job", &o->secret, error);
}

/* The key is random for every process. */
static bool key_is_fresh(const struct opening *o)
{
    const char *file = o->own.key_file;
    return !file ? o->drawn : strcmp(file, "fresh") == 0;
}

bool secure_key_path(const struct opening *o, char path[static SECURE_PATH_MAX])
{
    const char *file = o->own.key_file;
    struct error why;
    path[0] = '\0';
    if (key_is_fresh(o))
        return false;
    if (file)
        return snprintf(path, SECURE_PATH_MAX, "%s", file) < SECURE_PATH_MAX;
    return path_in_folder(o, "node.key", path, &why) == HEARTH_OK;
}

static int find_key(struct opening *o, struct error *error)
{
    const char *file = o->own.key_file;
    char path[PATH_TEXT_MAX];
    if (key_is_fresh(o))
        return node_key_fresh(&o->key, error);
    if (file)
        return node_key_load(file, &o->key, error);
    int status = path_in_folder(o, "node.key", path, error);
    return status == HEARTH_OK ? node_key_load(path, &o->key, error) : status;
}

int secure_find(struct opening *o, struct error *error)
{
    int status = HEARTH_OK;
    if (!needs_none(o)) {
        status = find_secret(o, error);
        if (o->discover == DISCOVER_IF_SECRET && status != HEARTH_OK) {
            log_write(&o->log, HEARTH_LOG_INFO, "HEARTH-ALONE", "this node stays alone: %s", error->text);
            o->discover = DISCOVER_NOT;
            status = HEARTH_OK;
        } else if (o->discover == DISCOVER_IF_SECRET) {
            o->discover = DISCOVER;
        }
        if (status == HEARTH_OK && o->secret)
            status = find_key(o, error);
    }
    o->own.secret = NULL; /* the caller's memory; not needed any more */
    if (status == HEARTH_OK && o->key)
        o->self.id.node = *node_key_id(o->key);
    return status;
}

/* ---- credentials ---- */

static int make_credentials(struct opening *o, struct error *error)
{
    struct credentials_setup setup = {
        .heap = o->heap,
        .key = o->key,
        .secret = o->secret,
        .trust = o->trust,
        .instance = o->self.id.instance,
    };
    o->key = NULL;
    o->secret = NULL;
    o->trust = NULL;
    return credentials_open(&setup, &o->credentials, error);
}

int secure_before_meeting(struct opening *o, struct error *error)
{
    return needs_none(o) || secure_meets_privately(o) ? HEARTH_OK : make_credentials(o, error);
}

int secure_after_meeting(struct opening *o, struct error *error)
{
    if (needs_none(o) || o->credentials)
        return HEARTH_OK;
    if (!o->roster.has_secret)
        return error_set(error, HEARTH_PROTOCOL, RANK_NONE, "open: the rendezvous handed out no secret");
    struct secret *given = NULL;
    int status = secret_from_bytes(o->roster.secret, secret_name(o->secret), &given, error);
    wipe(o->roster.secret, sizeof o->roster.secret);
    o->roster.has_secret = false;
    if (status == HEARTH_OK && !o->drawn &&
        memcmp(secret_namespace(given), secret_namespace(o->secret), NAMESPACE_LEN) != 0)
        status =
            error_set(error, HEARTH_INVALID, RANK_NONE,
                      "open: the rendezvous %s was opened with another secret: give all members the same, "
                      "or none",
                      o->own.rendezvous);
    if (status != HEARTH_OK) {
        secret_close(given);
        return status;
    }
    secret_close(o->secret);
    o->secret = given;
    return make_credentials(o, error);
}

void secure_fini(struct opening *o)
{
    node_key_close(o->key);
    secret_close(o->secret);
    trust_list_close(o->trust);
    credentials_close(o->credentials);
}

/* ---- while the node runs ---- */

static void expel_untrusted(hearth_node *node, const struct trust_list *trust)
{
    struct log log = node_log(node);
    for (int i = 0; i < hearth_group_size(&node->world); i++) {
        enum trust_verdict verdict = trust_list_judge(trust, &node->members[i].node);
        if (i == hearth_group_rank(&node->world) || verdict == TRUST_YES)
            continue;
        char who[NODE_ID_SHORT];
        node_id_short(&node->members[i].node, who);
        if (engine_expel(node->engine, i, trust_verdict_text(verdict)))
            log_write(&log, HEARTH_LOG_WARN, "HEARTH-EXPELLED", "rank %d (key %s) loses its link: %s", i, who,
                      trust_verdict_text(verdict));
    }
}

void secure_watch(hearth_node *node, uint64_t now_ns)
{
    struct error why;
    struct log log = node_log(node);
    struct trust_list *trust = node->credentials ? credentials_trust(node->credentials) : NULL;
    if (!trust || now_ns < node->trust_ns)
        return;
    node->trust_ns = now_ns + WATCH_NS;
    int status = trust_list_refresh(trust, &why);
    if (status == HEARTH_OK)
        expel_untrusted(node, trust);
    else if (status != HEARTH_PENDING && !node->trust_told)
        log_write(&log, HEARTH_LOG_WARN, "HEARTH-TRUST-FILE",
                  "the trust list cannot be read, the last one stays in force: %s", why.text);
    node->trust_told = status != HEARTH_OK && status != HEARTH_PENDING;
}
