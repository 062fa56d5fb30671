/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that want other TLS than ours: older, with other keys, certificates or protocols. None gets in. */
#include "members.h"
#include "support/suite.h"

#define PARTS "NONE:+AEAD:+CTYPE-X509:+VERS-TLS1.3:%DISABLE_TLS13_COMPAT_MODE"

#define no_tls13        "it offers no TLS 1.3 with the keys and suites that members have"
#define speaks_no_tls13 "it speaks no TLS 1.3 with the keys and suites that members have"

struct attempt {
    struct rogue_options options;
    int status;
    const char *text;
    int signatures; /* that it may cost us */
};

/* The rogue dials one of us, or is dialled. */
static void meet(const struct attempt *attempt, bool dials)
{
    struct end *end = dials ? &listener : &dialler;
    struct rogue_options options = attempt->options;
    struct rogue rogue;
    int signatures = ends_signatures;

    options.knock = dials ? knock : NULL;
    options.listens = !dials;
    end_open(end, dials ? bob : ann, dials ? CHANNEL_LISTENS : CHANNEL_DIALS);
    rogue_open(&rogue, &options);
    rogue_shake(&rogue, end);
    end_refused(end, attempt->status, attempt->text);
    assert_null(channel_peer(end->channel));
    assert_int_equal(ends_signatures - signatures, attempt->signatures);
    end_close(end);
}

TEST_WITH(test_diallers, members_set_up, members_tear_down)
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
        meet(&attempts[i], true);
}

TEST_WITH(test_listeners, members_set_up, members_tear_down)
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
        meet(&attempts[i], false);
}

/* A hello without a share for our group is asked to try again, and is the same guest then. */
static bool count_guest(void *arg, bool weak)
{
    (*(int *)arg)++;
    return true;
}

TEST_WITH(test_retry, members_set_up, members_tear_down)
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
    rogue_open(&rogue, &(struct rogue_options){.knock = knock,
                                               .priority = PARTS ":+GROUP-SECP256R1:+GROUP-X25519:+SIGN-ALL:"
                                                                 "+AES-128-GCM"});
    rogue_shake(&rogue, &listener);
    assert_int_equal(rogue.code, 0);
    assert_int_equal(listener.status, HEARTH_PENDING);
    assert_non_null(channel_peer(listener.channel));
    assert_int_equal(guests, 1);
    end_close(&listener);
}
