/* SPDX-License-Identifier: Apache-2.0 */
/* Makes members, and waits for them. */
#include <unistd.h>

#include "os/clock.h"
#include "support/persons.h"
#include "support/suite.h"

static struct credentials *person_trusting(struct heap *heap, uint8_t secret, uint64_t instance,
                                           struct trust_list *trust)
{
    struct credentials_setup setup = {.heap = heap, .instance = instance, .trust = trust};
    struct credentials *credentials = NULL;
    uint8_t bytes[SECRET_LEN];
    struct error error;

    memset(bytes, secret, sizeof bytes);
    assert_int_equal(node_key_fresh(&setup.key, &error), HEARTH_OK);
    assert_int_equal(secret_from_bytes(bytes, "test", &setup.secret, &error), HEARTH_OK);
    if (credentials_open(&setup, &credentials, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    return credentials;
}

struct credentials *person(struct heap *heap, uint8_t secret, uint64_t instance)
{
    return person_trusting(heap, secret, instance, NULL);
}

struct credentials *person_against(struct heap *heap, uint8_t secret, uint64_t instance,
                                   const struct node_id *revoked)
{
    char folder[] = "/tmp/hearth-persons-XXXXXX", path[64];
    struct trust_entry entry = {.id = *revoked, .revoked = true};
    struct trust_list *list = NULL;
    struct error error;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trust", folder);
    assert_int_equal(trust_list_open(heap, path, &list, &error), HEARTH_OK);
    if (trust_list_set(list, revoked, &entry, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/trust.lock", folder); /* where changes wait for each other */
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
    return person_trusting(heap, secret, instance, list);
}

void tcp_pair(int fds[2])
{
    struct sock_wait wait = {.want_recv = true};
    struct sock_addr addr, bound;
    struct error error;

    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &addr), HEARTH_OK);
    assert_int_equal(sock_listen(&addr, 1, &wait.fd, &bound, &error), HEARTH_OK);
    assert_int_equal(sock_dial(&bound, NULL, &fds[0], &error), HEARTH_OK);
    assert_int_equal(sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S), 1);
    assert_int_equal(sock_accept(wait.fd, &fds[1], &addr), HEARTH_OK);
    sock_unlisten(wait.fd);
    wait = (struct sock_wait){.fd = fds[0], .want_send = true};
    assert_int_equal(sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S), 1);
    assert_int_equal(sock_dialled(fds[0], &bound, &error), HEARTH_OK);
}

bool look(bool (*done)(void *arg), void *arg, int fd)
{
    for (int i = 0; i < LOOKS_MAX; i++) {
        struct sock_wait wait = {.fd = fd, .want_recv = true};
        if (done(arg))
            return true;
        (void)sock_wait(&wait, 1, clock_real() + 10 * NS_PER_MS);
    }
    return false;
}

static void note(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    struct notes *notes = arg;

    if (strcmp(id, notes->id) != 0)
        return;
    notes->lines++;
    if (level > HEARTH_LOG_WARN)
        return;
    notes->warnings++;
    snprintf(notes->last, sizeof notes->last, "%s", text);
}

struct log notes_log(struct notes *notes, const char *id)
{
    *notes = (struct notes){.id = id};
    return (struct log){note, notes, HEARTH_LOG_DEBUG};
}
