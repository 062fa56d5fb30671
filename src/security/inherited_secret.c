/* SPDX-License-Identifier: Apache-2.0 */
/* The secret that a launcher left in an open descriptor. It is read once and closed, so that nothing that
 * this process executes later can read it; whatever opens another node here gets what was read. */
#include "os/private_file.h"
#include "os/thread.h"
#include "security/secret.h"

/* Of this process alone: in a forked child its memory is empty. */
static struct {
    struct mutex lock;
    int process, fd;
    struct secret *secret;
} kept = {.lock = MUTEX_STATIC, .fd = -1};

static int copy_of(const struct secret *secret, struct secret **out, struct error *error)
{
    return secret_from_bytes(secret_bytes(secret), secret_name(secret), out, error);
}

/* The number may be another file's by now: only what holds a token is taken, and then closed. */
static int inherit(int fd, struct secret **out, struct error *error)
{
    struct secret *copy = NULL;
    int process = process_id(), status = secret_read_fd(fd, out, error);

    if (status)
        return kept.secret && kept.fd == fd && kept.process == process ? copy_of(kept.secret, out, error)
                                                                       : status;
    private_file_close_fd(fd);
    status = copy_of(*out, &copy, error);
    if (status) {
        secret_close(*out);
        *out = NULL;
        return status;
    }
    secret_close(kept.secret);
    kept.secret = copy;
    kept.fd = fd;
    kept.process = process;
    return HEARTH_OK;
}

int secret_inherit(int fd, struct secret **out, struct error *error)
{
    mutex_lock(&kept.lock);
    int status = inherit(fd, out, error);
    mutex_unlock(&kept.lock);
    return status;
}
