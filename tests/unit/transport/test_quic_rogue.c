/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer may say inside of QUIC when its handshake is complete, for which a knock that was overheard is
 * enough: it ends its own line, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "os/clock.h"

#include "quic_pair.h"

#if !defined(HEARTH_QUIC)

int main(void)
{
    return 77;
}

#else

#include <gnutls/gnutls.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>

#define ENDLESS (SIZE_MAX / 2)

static struct quic_pair pair;

/* The library's own end of a side's only line. */
static ngtcp2_conn *native(int side)
{
    struct quic_line *line = pair.sides[side].quic->lines[0];
    ngtcp2_crypto_conn_ref *ref = gnutls_session_get_ptr(quic_engine_session(line->engine));
    return ref->get_conn(ref);
}

/* Side `from` says these bytes in TLS, behind its handshake: the other one is done with it. */
static void say_late(int from, const uint8_t *bytes, size_t len)
{
    struct pair_wish wish = {0};
    quic_pair_open(&pair, &wish);
    pair_join(&pair, &wish);
    assert_int_equal(pair.sides[0].status, HEARTH_OK);
    assert_int_equal(pair.sides[1].status, HEARTH_OK);
    assert_int_equal(
        ngtcp2_conn_submit_crypto_data(native(from), NGTCP2_CRYPTO_LEVEL_APPLICATION, bytes, len), 0);
    struct traffic list[2];
    for (int i = 0; i < 2; i++)
        list[i] = (struct traffic){.conn = pair.sides[i].peer.conns[1],
                                   .seed_out = (uint64_t)i,
                                   .seed_in = (uint64_t)(1 - i),
                                   .in = ENDLESS,
                                   .out = ENDLESS};
    uint64_t until_ns = clock_real() + PATIENCE_NS;
    while (list[1 - from].lost == 0 && clock_real() < until_ns) {
        bool moved = traffic_move(&list[0]);
        if (!traffic_move(&list[1]) && !moved)
            pair_rest(&pair);
    }
    assert_int_equal(list[1 - from].lost, HEARTH_PEER_LOST);
    quic_pair_close(&pair);
}

static void a_change_of_keys_in_tls_ends_the_line(void **state)
{
    static const uint8_t update[] = {24, 0, 0, 1, 0}, update_and_ask[] = {24, 0, 0, 1, 1};
    (void)state;
    for (int from = 0; from < 2; from++) {
        say_late(from, update, sizeof update);
        say_late(from, update_and_ask, sizeof update_and_ask);
    }
}

static void other_words_in_tls_end_the_line(void **state)
{
    static const uint8_t ticket[] = {4, 0, 0, 4, 0, 0, 0, 0}, half[] = {24, 0};
    (void)state;
    for (int from = 0; from < 2; from++) {
        say_late(from, ticket, sizeof ticket);
        say_late(from, half, sizeof half);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_of_keys_in_tls_ends_the_line),
        cmocka_unit_test(other_words_in_tls_end_the_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
