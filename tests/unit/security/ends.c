/* SPDX-License-Identifier: Apache-2.0 */
/* Carries bytes between two channels. */
#include "ends.h"
#include "support/suite.h"

struct heap ends_heap;
int ends_signatures;

/* The linker puts the first in the place of node_key_sign. */
void __wrap_node_key_sign(const struct node_key *key, const void *message, size_t len, uint8_t *signature);
void __real_node_key_sign(const struct node_key *key, const void *message, size_t len, uint8_t *signature);

void __wrap_node_key_sign(const struct node_key *key, const void *message, size_t len, uint8_t *signature)
{
    ends_signatures++;
    __real_node_key_sign(key, message, len, signature);
}

struct credentials *ends_node(const struct node_options *options)
{
    struct credentials_setup setup = {
        .heap = &ends_heap,
        .key = options->key,
        .instance = options->instance,
        .trust = options->trust,
        .suites = options->suites,
    };
    struct credentials *credentials = NULL;
    uint8_t bytes[SECRET_LEN];
    struct error error;

    memset(bytes, options->secret, sizeof bytes);
    if (!setup.key)
        assert_int_equal(node_key_fresh(&setup.key, &error), HEARTH_OK);
    assert_int_equal(secret_from_bytes(bytes, "test", &setup.secret, &error), HEARTH_OK);
    if (credentials_open(&setup, &credentials, &error))
        fail_msg("%s", error.text);
    return credentials;
}

void end_open(struct end *end, const struct credentials *credentials, enum channel_role role)
{
    struct session_setup setup = {.heap = &ends_heap, .credentials = credentials, .role = role};

    *end = (struct end){.status = HEARTH_PENDING};
    if (channel_open(&setup, &end->channel, &end->error))
        fail_msg("%s", end->error.text);
}

void end_close(struct end *end)
{
    channel_close(end->channel);
    end->channel = NULL;
}

size_t end_feed(struct end *end, const void *bytes, size_t len, size_t piece)
{
    const uint8_t *at = bytes;
    size_t given = 0;

    while (given < len) {
        size_t take = channel_wants(end->channel);

        assert_true(take >= 1);
        if (piece && take > piece)
            take = piece;
        if (take > len - given)
            take = len - given;
        end->status = channel_input(end->channel, at + given, take, &end->error);
        given += take;
        if (end->status != HEARTH_OK && end->status != HEARTH_PENDING)
            break;
    }
    return given;
}

size_t end_take(struct end *end, void *target, size_t len_max)
{
    struct iovec out = channel_output(end->channel);
    size_t len = out.iov_len < len_max ? out.iov_len : len_max;

    if (len > 0)
        memcpy(target, out.iov_base, len);
    channel_sent(end->channel, len);
    return len;
}

size_t ends_carry_one_way(struct end *from, struct end *to, size_t piece, struct caught *copy)
{
    uint8_t bytes[ENDS_CAUGHT_MAX];
    size_t len = end_take(from, bytes, sizeof bytes);

    if (copy) {
        assert_true(copy->len + len <= sizeof copy->bytes);
        memcpy(copy->bytes + copy->len, bytes, len);
        copy->len += len;
    }
    (void)end_feed(to, bytes, len, piece);
    return len;
}

void ends_carry(struct end *a, struct end *b, size_t piece)
{
    while (ends_carry_one_way(a, b, piece, NULL) + ends_carry_one_way(b, a, piece, NULL) > 0)
        ;
}

void ends_join(struct end *dialler, struct end *listener, const struct credentials *a,
               const struct credentials *b)
{
    end_open(dialler, a, CHANNEL_DIALS);
    end_open(listener, b, CHANNEL_LISTENS);
    ends_carry(dialler, listener, 0);
    if (dialler->status != HEARTH_OK || listener->status != HEARTH_OK)
        fail_msg("dialler %d: %s; listener %d: %s", dialler->status, dialler->error.text, listener->status,
                 listener->error.text);
}

void ends_exchange(struct end *from, struct end *to, size_t len)
{
    static uint8_t sent[CHANNEL_MESSAGE_MAX], came[CHANNEL_MESSAGE_MAX + 1];

    for (size_t i = 0; i < len; i++)
        sent[i] = (uint8_t)(i * 7 + len);
    assert_true(channel_send(from->channel, sent, len));
    (void)ends_carry_one_way(from, to, 0, NULL);
    assert_int_equal(to->status, HEARTH_OK);
    assert_int_equal(channel_recv(to->channel, came, sizeof came), len);
    assert_memory_equal(came, sent, len);
    assert_int_equal(channel_recv(to->channel, came, sizeof came), 0);
}

void end_refused(const struct end *end, int status, const char *text)
{
    assert_string_equal(end->error.text, text);
    assert_int_equal(end->status, status);
    assert_int_equal(end->error.status, status);
    assert_false(channel_ready(end->channel));
}
