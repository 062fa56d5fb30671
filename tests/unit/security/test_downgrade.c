/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that want other TLS than ours: older, with other keys, certificates or protocols. None gets in. */
#include "rogue.h"
#include "support/suite.h"

#define PARTS "NONE:+AEAD:+CTYPE-X509:+VERS-TLS1.3:%DISABLE_TLS13_COMPAT_MODE"

#define no_tls13        "it offers no TLS 1.3 with the keys and suites that members have"
#define speaks_no_tls13 "it speaks no TLS 1.3 with the keys and suites that members have"

static struct credentials *ann, *bob;
static struct end dialler, listener;
static char knock[128];

static int set_up(void **state)
{
    (void)state;
    heap_init(&ends_heap, 0);
    ann = ends_node(&(struct node_wish){.secret = 1, .instance = 0xa});
    bob = ends_node(&(struct node_wish){.secret = 1, .instance = 0xb});
    rogue_knock(1, knock);
    ends_signatures = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ends_join(&dialler, &listener, ann, bob);
    end_close(&dialler);
    end_close(&listener);
    credentials_close(ann);
    credentials_close(bob);
    return ends_heap.blocks == 0 ? 0 : -1;
}

struct attempt {
    struct rogue_wish wish;
    int status;
    const char *text;
    int signatures; /* that it may cost us */
};

static void dial(const struct attempt *attempt)
{
    struct rogue_wish wish = attempt->wish;
    struct rogue rogue;
    int signatures = ends_signatures;

    wish.knock = knock;
    end_open(&listener, bob, CHANNEL_LISTENS);
    rogue_open(&rogue, &wish);
    rogue_shake(&rogue, &listener);
    end_refused(&listener, attempt->status, attempt->text);
    assert_null(channel_peer(listener.channel));
    assert_int_equal(ends_signatures - signatures, attempt->signatures);
    rogue_close(&rogue);
    end_close(&listener);
}

static void answer(const struct attempt *attempt)
{
    struct rogue_wish wish = attempt->wish;
    struct rogue rogue;
    int signatures = ends_signatures;

    wish.listens = true;
    end_open(&dialler, ann, CHANNEL_DIALS);
    rogue_open(&rogue, &wish);
    rogue_shake(&rogue, &dialler);
    end_refused(&dialler, attempt->status, attempt->text);
    assert_null(channel_peer(dialler.channel));
    assert_int_equal(ends_signatures - signatures, attempt->signatures);
    rogue_close(&rogue);
    end_close(&dialler);
}

TEST_WITH(test_diallers, set_up, tear_down)
{
    static const struct attempt attempts[] = {
        {{.priority = ROGUE_TLS12}, HEARTH_PROTOCOL, no_tls13, 0},
        {{.priority = "NORMAL:-VERS-ALL:+VERS-TLS1.1"}, HEARTH_PROTOCOL, no_tls13, 0},
        {{.alpn = "h2"}, HEARTH_PROTOCOL, "it does not speak hearth/1", 0},
        {{.alpn = ""}, HEARTH_PROTOCOL, "it does not speak hearth/1", 1},
        {{.priority = PARTS ":+GROUP-SECP256R1:+SIGN-ALL:+AES-128-GCM"}, HEARTH_PROTOCOL, no_tls13, 0},
        {{.priority = PARTS ":+GROUP-X25519:+SIGN-ALL:+AES-256-GCM"}, HEARTH_PROTOCOL, no_tls13, 0},
        {{.priority = PARTS ":+GROUP-X25519:+SIGN-ECDSA-SECP256R1-SHA256:+AES-128-GCM"},
         HEARTH_PROTOCOL,
         no_tls13,
         0},
        {{.key = ROGUE_NO_KEY}, HEARTH_PROTOCOL, "it shows no certificate", 1},
        {{.key = ROGUE_ECDSA}, HEARTH_PROTOCOL, "it shows no certificate", 1},
        {{.key = ROGUE_RSA}, HEARTH_PROTOCOL, "it shows no certificate", 1},
        {{.certificates = 2}, HEARTH_PROTOCOL, "it shows more than one certificate", 1},
        {{.priority = ROGUE_COMPAT}, HEARTH_PROTOCOL, "it sends what is no TLS record", 1},
    };

    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++)
        dial(&attempts[i]);
}

TEST_WITH(test_listeners, set_up, tear_down)
{
    static const struct attempt attempts[] = {
        {{.priority = ROGUE_TLS12}, HEARTH_PEER_LOST, speaks_no_tls13, 0},
        {{.alpn = "h2"}, HEARTH_PROTOCOL, "it does not speak hearth/1", 0},
        {{.alpn = ""}, HEARTH_PROTOCOL, "it does not speak hearth/1", 0},
        {{.priority = PARTS ":+GROUP-SECP256R1:+SIGN-ALL:+AES-128-GCM"},
         HEARTH_PEER_LOST,
         speaks_no_tls13,
         0},
        {{.priority = PARTS ":+GROUP-X25519:+SIGN-ALL:+AES-256-GCM"}, HEARTH_PEER_LOST, speaks_no_tls13, 0},
        {{.key = ROGUE_NO_KEY}, HEARTH_PEER_LOST, speaks_no_tls13, 0},
        {{.key = ROGUE_ECDSA}, HEARTH_PEER_LOST, speaks_no_tls13, 0},
        {{.key = ROGUE_RSA}, HEARTH_PEER_LOST, speaks_no_tls13, 0},
        {{.certificates = 2}, HEARTH_PROTOCOL, "it shows more than one certificate", 0},
        {{.priority = ROGUE_COMPAT}, HEARTH_PROTOCOL, "it sends what is no TLS record", 0},
    };

    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++)
        answer(&attempts[i]);
}

/* A hello without a share for our group is asked to try again, and is the same guest then. */
static bool count_guest(void *arg, bool weak)
{
    (void)weak;
    (*(int *)arg)++;
    return true;
}

TEST_WITH(test_retry, set_up, tear_down)
{
    int guests = 0;
    struct session_setup setup = {.heap = &ends_heap,
                                  .credentials = bob,
                                  .role = CHANNEL_LISTENS,
                                  .admit = count_guest,
                                  .admit_arg = &guests};
    struct rogue rogue;

    listener = (struct end){.status = HEARTH_PENDING};
    assert_int_equal(channel_open(&setup, &listener.channel, &listener.error), HEARTH_OK);
    rogue_open(&rogue, &(struct rogue_wish){.knock = knock,
                                            .priority = PARTS ":+GROUP-SECP256R1:+GROUP-X25519:+SIGN-ALL:"
                                                              "+AES-128-GCM"});
    rogue_shake(&rogue, &listener);
    assert_int_equal(rogue.code, 0);
    assert_int_equal(listener.status, HEARTH_PENDING);
    assert_non_null(channel_peer(listener.channel));
    assert_int_equal(guests, 1);
    rogue_close(&rogue);
    end_close(&listener);
}
