/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a peer set, shared by peer_set.c, peer_set_dial.c and peer_conn.c: one connection, and the
 * set.
 */
#pragma once

#include "cluster/known_addrs.h"
#include "cluster/peer_hello.h"
#include "cluster/peer_set.h"
#include "connect/dial_driver.h"
#include "connect/half_open.h"

#define CONNS_MAX           320 /* with half-open connections and dialers below PEER_SET_WAITS_MAX */
#define PEER_CONN_HELLO_NS  (5 * NS_PER_S)  /* for handshake and hello */
#define PEER_CONN_ANSWER_NS (10 * NS_PER_S) /* for the answer: longer than the listener waits for a hello */
#define PEER_CONN_RETIRE_NS (5 * NS_PER_S)
#define PEER_CONN_QUEUE_MAX (1u << 20) /* bytes in the send queue */

/*   we dial:     (dialer) --proven, hello sent--> greeted --hello received--> ready
 *   for a probe: dialling --proven, hello sent--> greeted --hello received--> over, the caller's
 *   peer dials:  (half-open connections) --hello received--> ready, hello sent
 *   ready --another one stays--> retiring --the peer closes--> over */
enum peer_conn_state {
    PEER_CONN_DIALLING,
    PEER_CONN_GREETED,
    PEER_CONN_READY,
    PEER_CONN_RETIRING,
    PEER_CONN_OVER
};

struct peer_conn {
    struct list item;      /* of peers->connections */
    struct list news_item; /* of peers->news, while there are bits in `news` */
    struct list hot_item;  /* of peers->hot: may be readable */
    enum peer_conn_state state;
    unsigned news; /* 1 << enum peer_news_kind */
    uint8_t purpose;
    bool dialled;                 /* by us */
    bool finished;                /* retiring: all is sent */
    bool more;                    /* its share is used up; goes on after the next peer_set_pump */
    int messages_left;            /* of that share */
    struct secure_stream *stream; /* NULL: a probe being dialled */
    struct dial_target target;    /* of such a probe */
    int known;                    /* known address, -1: none; greeted: its attempt goes on */
    struct sock_addr addr;
    struct identity peer; /* dialling for a probe: the expected one; from greeted on: the proven one */
    uint32_t peer_serial; /* of the last hello received */
    struct peer_info info;
    uint64_t ready_ns;
    uint64_t deadline_ns;
    uint64_t round_trip_ns;
    struct message_reader reader;
    struct message_queue queue;
    uint64_t bytes_sent, bytes_received, messages_dropped;
    char why[KNOWN_ADDR_WHY_MAX];
};

struct peer_set {
    struct heap *heap;
    struct log log;
    const struct credentials *credentials;
    struct identity id;
    struct peer_info self;
    uint32_t serial; /* of the last hello sent */
    uint64_t now_ns;
    struct half_open *half_open;
    struct dial_driver driver, probe_driver;
    struct known_addrs known_addrs; /* targets of the first driver */
    struct list conns, news, hot;
    int count;                     /* of open connections */
    struct peer_set_traffic ended; /* of closed ones */
    struct peer_conn *lent;        /* the caller holds its message */
};

/* Iterates over the open ones; they may end meanwhile. */
#define PEER_CONN_EACH(each, at, after, f)                                                                   \
    LIST_EACH (at, after, &(f)->conns)                                                                       \
        if (((each) = container_of(at, struct peer_conn, item))->state != PEER_CONN_OVER)

/* ---- peer_conn.c ---- */

struct peer_conn *peer_conn_open(struct peer_set *f, bool dialled); /* NULL: no memory, or too many */
/* Frees closed ones without news. */
void conns_reap(struct peer_set *f);
void peer_conn_free(struct peer_conn *conn);

void peer_conn_tell(struct peer_set *f, struct peer_conn *conn, enum peer_news_kind kind);
void peer_conn_heat(struct peer_set *f, struct peer_conn *conn); /* it may be readable */
/* The one to send on; NULL: not connected. */
struct peer_conn *peer_conn_best(const struct peer_set *f, const struct identity *peer);
int conns_linked(const struct peer_set *f); /* nodes */
int conns_probes(const struct peer_set *f); /* connections */

/* Closes a connection before it is ready. Puts the address before the text unless `named`. */
void peer_conn_fail(struct peer_set *f, struct peer_conn *conn, const char *what);
void peer_conn_fail_named(struct peer_set *f, struct peer_conn *conn, const char *why);
/* Sends hello on a connection that is proven to be `peer`; false: it broke. */
bool peer_conn_hello(struct peer_set *f, struct peer_conn *conn);
/* The dialler's hello has arrived: takes the secure stream. */
void peer_conn_arrive(struct peer_set *f, const struct half_open_incoming *guest,
                      const struct message_hello *hello);
/* Reads. HEARTH_OK: a message for the caller. HEARTH_PENDING: none now. Else it has ended. */
int peer_conn_hear(struct peer_set *f, struct peer_conn *conn);
bool peer_conn_put(struct peer_set *f, struct peer_conn *conn, uint8_t kind, const void *payload, size_t len);
void peer_conn_flush(struct peer_conn *conn);
/* Closes a ready one. */
void peer_conn_lose(struct peer_set *f, struct peer_conn *conn, const char *why);
/* The hello matches the identity that the handshake proved. */
int MUST_CHECK hello_check(const struct peer_set *f, const struct secure_stream *stream, const void *payload,
                           size_t len, struct message_hello *hello, const char **what);

/* ---- peer_set_dial.c ---- */

int MUST_CHECK dial_prepare(struct peer_set *f, uint64_t connect_timeout_ns, uint64_t seed);
void dial_pump_all(struct peer_set *f); /* starts and continues all attempts */
void dial_tell_all(struct peer_set *f); /* handles their results */
