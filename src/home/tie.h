/* SPDX-License-Identifier: Apache-2.0 */
/* Between fellows.c, fellows_dial.c and tie.c: one connection, and what all of them have in common. */
#ifndef HOME_TIE_H
#define HOME_TIE_H

#include "bootstrap/lobby.h"
#include "home/candidates.h"
#include "home/fellows.h"
#include "home/letter_queue.h"
#include "home/letter_reader.h"

#define TIES_MAX      352             /* with LOBBY_WAITS_MAX below FELLOWS_WAITS_MAX */
#define TIE_HELLO_NS  (5 * NS_PER_S)  /* for handshake and hello */
#define TIE_ANSWER_NS (10 * NS_PER_S) /* for the answer: longer than the listener waits for what it answers */
#define TIE_RETIRE_NS (5 * NS_PER_S)

/*   we dial:     dialling --connected--> shaking --proven, hello said--> greeted --hello heard--> ready
 *   peer dials:  (lobby) --hello heard--> ready, hello said
 *   ready --another one stays--> retiring --the peer closes--> over */
enum tie_state { TIE_DIALLING, TIE_SHAKING, TIE_GREETED, TIE_READY, TIE_RETIRING, TIE_OVER };

struct tie {
    struct list item;      /* of fellows->ties */
    struct list news_item; /* of fellows->news, while there are bits in `news` */
    struct list hot_item;  /* of fellows->hot: something may have come */
    enum tie_state state;
    unsigned news; /* 1 << enum fellows_news_kind */
    uint8_t purpose;
    bool dialled;          /* by us */
    bool finished;         /* retiring: all is said */
    bool more;             /* it had its share; go on after the next fellows_pump */
    int letters_left;      /* of that share */
    int fd;                /* -1: the tunnel has it */
    struct tunnel *tunnel; /* from when it is connected */
    int candidate;         /* -1: none */
    struct sock_addr addr;
    struct identity peer; /* shaking for a probe: who it must be; from greeted on: who it is */
    uint32_t peer_serial; /* of the last hello heard */
    struct fellow fellow;
    uint64_t began_ns, connected_ns, ready_ns;
    uint64_t deadline_ns;
    uint64_t yield_ns; /* dials: may be broken off then, if others wait */
    uint64_t round_trip_ns;
    struct letter_reader reader;
    struct letter_queue queue;
    uint64_t bytes_sent, bytes_received, letters_dropped;
    char why[CANDIDATE_WHY_MAX];
};

struct fellows {
    struct heap *heap;
    struct log log;
    const struct credentials *credentials;
    uint64_t connect_timeout_ns;
    struct identity id;
    struct fellow self;
    uint32_t serial; /* of the last hello said */
    uint64_t now_ns;
    uint64_t shake_ns; /* how long handshakes take that succeed: the longest of late */
    struct lobby *lobby;
    struct candidates candidates;
    struct list ties, news, hot;
    int count;                    /* of ties that are not over */
    struct fellows_traffic ended; /* of those that are */
    struct tie *lent;             /* its letter is with the caller */
};

/* Walks all that are not over; they may end meanwhile. */
#define TIE_EACH(each, at, after, f)                                                                         \
    LIST_EACH (at, after, &(f)->ties)                                                                        \
        if (((each) = container_of(at, struct tie, item))->state != TIE_OVER)

/* ---- tie.c ---- */

struct tie *tie_open(struct fellows *f, bool dialled); /* NULL: no memory, or too many */
/* Frees those that are over and have nothing to tell. */
void ties_reap(struct fellows *f);
void tie_free(struct tie *tie);

void tie_tell(struct fellows *f, struct tie *tie, enum fellows_news_kind kind);
void tie_heat(struct fellows *f, struct tie *tie); /* there may be something to read */
/* The one to send by; NULL: we are not joined. */
struct tie *tie_best(const struct fellows *f, const struct identity *peer);
int ties_linked(const struct fellows *f); /* nodes */
int ties_probes(const struct fellows *f); /* connections */

/* Closes; what was to come of it does not. */
void tie_fail(struct fellows *f, struct tie *tie, const char *why);
/* Says hello on a tie that is proven to be `peer`; false: it broke. */
bool tie_hello(struct fellows *f, struct tie *tie);
/* The dialler's hello has come: takes the tunnel. */
void tie_arrive(struct fellows *f, const struct lobby_guest *guest, const struct letter_hello *hello);
/* Reads. HEARTH_OK: a letter for the caller. HEARTH_PENDING: nothing now. Else it has ended. */
int tie_hear(struct fellows *f, struct tie *tie);
bool tie_put(struct fellows *f, struct tie *tie, uint8_t kind, const void *payload, size_t len);
void tie_flush(struct tie *tie);
/* Of one that is ready: closes it. */
void tie_lose(struct fellows *f, struct tie *tie, const char *why);
/* A hello that may be said by whom the handshake proved. */
int MUST_CHECK hello_check(const struct fellows *f, const struct tunnel *tunnel, const void *payload,
                           size_t len, struct letter_hello *hello, const char **what);

/* ---- fellows_dial.c ---- */

void dial_due(struct fellows *f);                   /* whoever is to be dialled now */
void dial_move(struct fellows *f, struct tie *tie); /* dialling or shaking, and ready */
uint64_t dial_deadline(const struct fellows *f);    /* when dial_due must be called */
const char *tie_late_text(const struct tie *tie);   /* why a tie whose deadline has passed failed */
struct tie *dial_open(struct fellows *f, const struct sock_addr *addr, struct error *error);

#endif
