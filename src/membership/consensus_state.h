/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the consensus, shared by its files. */
#pragma once

#include "core/prng.h"
#include "membership/consensus.h"
#include "security/digest.h"

#define PEERS_MAX 192 /* connected nodes, and members that are not connected */
#define PAST_MAX  64  /* earlier instances of this node */
#define PROXY_MAX 8   /* members that left and gave this node their vote */

#define GATHER_NS (40 * NS_PER_MS) /* changes within this time make one view */
#define TRIES_MIN 2 /* after so many calls, a candidate may get votes though the leader lives */

/* Terms rise by one with each call, epochs with each view. A peer whose term is much later than all known
 * ones is far ahead, or lies: each message moves the known term by at most this step, and this node votes
 * only near it. A node that is more epochs behind than that joins again. So no peer can exhaust the numbers:
 * that takes 2^42 messages. */
#define TERM_STEP  (UINT64_C(1) << 16)
#define EPOCH_STEP (UINT64_C(1) << 20)
#define JOIN_MAX   (UINT64_C(1) << 48) /* largest term and epoch of an instance to join */

/* ---- messages (consensus_messages.c) ---- */

#define BEAT_QUORUM 1u  /* of the leader: a quorum is heard */
#define BEAT_BUSY   2u  /* of the leader: a job runs */
#define BEAT_WORKED 4u  /* a job ran in this instance, now or before */
#define BEAT_LEADS  8u  /* the sender is the leader of its view */
#define BEAT_BEGUN  16u /* of the leader: a job runs, perhaps only just started */

struct beat {
    uint64_t stamp_ns;         /* the sender's clock: returned as echo */
    uint64_t echo_ns, hold_ns; /* stamp of the receiver's last heartbeat, and its age; 0: none yet */
    uint64_t instance, epoch;  /* of the sender's view */
    uint64_t request;          /* the instance it asks to join, 0: none */
    uint64_t request_after;    /* it was there up to this epoch: only a later view admits it */
    uint16_t size;             /* of its view */
    uint8_t flags;             /* BEAT_ */
    uint32_t every_ms;         /* heartbeat interval that the sender expects of the receiver */
    struct digest digest;      /* of the sender's view */
};
#define BEAT_LEN 80
#define TERM_MAX (UINT64_MAX / 2) /* so that a next one exists */

static inline bool term_sane(uint64_t term)
{
    return term != 0 && term <= TERM_MAX;
}

struct vote_request {
    uint64_t instance, epoch, term;
    uint32_t tries; /* failed calls before this one */
};
#define CALL_LEN 32

/* An acceptor's answer: VOTE, ACCEPT, and LEAVE with its last state. */
struct answer {
    uint64_t instance, epoch; /* where the acceptor stands */
    uint64_t term;            /* of the question; LEAVE: 1 + the heir's index in the view, 0: none */
    uint64_t promised;        /* by the acceptor */
    uint64_t accepted_term;   /* VOTE, LEAVE: of the view behind it; 0: there is none */
    bool yes;                 /* LEAVE: the receiver holds the vote from now on */
    struct digest digest;     /* ACCEPT: of the view that was proposed */
};
#define ANSWER_LEN 64

void beat_put(struct writer *w, const struct beat *b);
bool beat_get(struct reader *r, struct beat *b);
void call_put(struct writer *w, const struct vote_request *c);
bool call_get(struct reader *r, struct vote_request *c);
/* `accepted` NULL, or valid if accepted_term is not 0. */
void answer_put(struct writer *w, const struct answer *a, const struct view *accepted);
bool answer_get(struct reader *r, struct answer *a, struct view *accepted);

/* ---- the state machine ---- */

/* A view that a peer is in, or has accepted in this term. */
struct ballot {
    uint64_t instance, epoch, term;
    struct digest digest;
};

struct voter {
    struct peer_info info; /* as it described itself last */
    struct health health;
    int index;            /* in our view, -1: not in it */
    bool left;            /* it announced that it leaves */
    int heir;             /* member of our view that got its vote; -1: none */
    bool told;            /* `beat` is valid */
    bool copied;          /* its key is on another machine too */
    bool conflict_told;   /* reported: its instance and ours are both busy */
    struct beat beat;     /* the last one */
    uint64_t beat_at_ns;  /* its arrival */
    uint64_t answered_ns; /* the last stamp of ours that it returned */
    uint64_t stray_ok_ns; /* until then it may be in another instance */
    uint64_t view_at_ns;  /* when we last sent it a view */
    uint64_t view_epoch;  /* of that view */
    struct ballot view;   /* its view, as it says; no term */
    struct ballot accept; /* its last acceptance, as it says */
};

enum campaign_phase { CAMPAIGN_NONE, CAMPAIGN_CALLING, CAMPAIGN_PROPOSING };

struct campaign {
    enum campaign_phase phase;
    uint64_t term;              /* the ballot */
    uint32_t tries;             /* failed ones */
    bool yes[VIEW_MEMBERS_MAX]; /* votes, then acceptances */
    bool no[VIEW_MEMBERS_MAX];  /* final refusals */
    uint64_t best_term;         /* of the view that voters had accepted; 0: none */
    uint64_t resend_ns, end_ns; /* when to send again; when the campaign has failed */
    uint64_t not_before_ns;     /* pause after a failure */
};

struct past {
    uint64_t instance, epoch;
};

struct consensus {
    struct heap *heap;
    struct log log;
    struct outbox *outbox;
    struct peer_info self;
    const struct health_preset *preset;
    uint64_t answer_ns; /* see answer_ns() */
    struct prng prng;
    uint64_t now_ns;
    uint64_t think_ns; /* when think() is due without an event */
    enum consensus_state state;
    bool stir;                    /* something changed: think() */
    bool announce;                /* a heartbeat to all peers at once */
    bool has_quorum, quorum_told; /* the state; the state last reported */
    bool busy;                    /* as set by the caller; valid while we lead */
    bool begun;                   /* likewise */
    bool worked;                  /* a job ran in this instance */
    uint64_t stranded_ns;         /* since when; valid while there is no quorum */
    uint64_t anew_jitter_ns;

    /* as an acceptor */
    struct view view;
    struct digest digest; /* of it */
    struct view previous; /* the one before, of whatever instance */
    uint64_t adopted_ns;
    int me; /* index of ourselves */
    uint64_t promised;
    struct identity voted_for; /* in the promised term */
    uint64_t accepted_term;    /* 0: nothing accepted for the next epoch */
    struct view accepted;
    struct digest accepted_digest;
    bool accepted_inherited; /* by a member that left and gave us its vote */
    struct identity proxies[PROXY_MAX];
    int proxy_count;

    /* views that others report */
    struct view offered; /* not proven yet; size 0: none */
    struct digest offered_digest;
    uint64_t apart_ns; /* since when others are in another view of our instance; 0: they are not */

    /* as a candidate or leader */
    struct campaign campaign;
    struct view proposal;
    struct digest proposal_digest;
    uint64_t seen_term;      /* the highest that a peer named, in steps */
    uint64_t leader_lost_ns; /* since when; 0: it lives */
    uint64_t change_ns;      /* when the next view is to be proposed; NEVER_NS: nothing to change */

    /* between instances */
    uint64_t request, request_end_ns, request_pause_ns;
    uint64_t dissolve_ns; /* when to tell our members again */
    struct past past[PAST_MAX];
    int past_count;

    struct voter *peers[PEERS_MAX];
    int peer_count;
    struct voter *member[VIEW_MEMBERS_MAX]; /* by index; NULL: this node, or no memory */
    struct view scratch;                    /* of the message at hand */
    uint8_t message[VIEW_LEN_MAX + 64];     /* being written */

    struct event_log *events;
    struct consensus_counts counts;
};

/* consensus.c */
bool self_leads(const struct consensus *a);                            /* we are the leader of our view */
bool proxy_held(const struct consensus *a, const struct identity *id); /* it gave us its vote */
struct voter *peer_find(const struct consensus *a, const struct identity *id);
void members_link(struct consensus *a); /* indices and peers of the present view */
bool member_gone(const struct consensus *a, int index);
bool member_present(const struct consensus *a, int index);
void view_copy(struct view *to, const struct view *from);
uint64_t answer_ns(const struct consensus *a); /* time for an answer before we ask again */
void send_message(struct consensus *a, const struct identity *to, uint8_t kind, const struct writer *w);
void send_beat(struct consensus *a, struct voter *p);
struct writer message_begin(struct consensus *a);
void send_view(struct consensus *a, struct voter *p);

/* consensus_vote.c */
void vote_reset(struct consensus *a); /* no campaign */
void vote_think(struct consensus *a);
uint64_t vote_deadline(const struct consensus *a);
bool term_near(const struct consensus *a, uint64_t term); /* to those that we know */
void take_call(struct consensus *a, struct voter *from, const struct vote_request *call);
void take_vote(struct consensus *a, struct voter *from, const struct answer *answer);
void take_propose(struct consensus *a, struct voter *from, uint64_t term);
void take_accept(struct consensus *a, struct voter *from, const struct answer *answer);
void send_accept(struct consensus *a, struct voter *p); /* if we have accepted a view */
void vote_decided(struct consensus *a);                 /* adopts what we have accepted */
void take_leave(struct consensus *a, struct voter *from, const struct answer *answer);
struct voter *vote_heir(const struct consensus *a); /* the member that gets our vote when we leave, or NULL */
/* It knows of epochs that ours will not reach soon: a peer lied to it, or to us. */
bool change_out_of_reach(const struct consensus *a, const struct voter *p);

/* consensus_instance.c: from view to view, from instance to instance */
void instance_found(struct consensus *a);
/* It is a later view of our instance, or admits us to the one we request to join. */
bool instance_wants(const struct consensus *a, const struct view *view);
void instance_adopt(struct consensus *a, const struct view *view);       /* decided; if we want it */
uint64_t instance_left_at(const struct consensus *a, uint64_t instance); /* epoch; 0: never been there */
void instance_think(struct consensus *a);
uint64_t instance_deadline(const struct consensus *a);
void take_dissolve(struct consensus *a, struct voter *from, uint64_t instance, uint64_t target);
bool instance_better(const struct consensus *a, const struct voter *leader); /* than ours */

/* consensus_evidence.c: which views of others are believed */
struct digest view_digest(struct consensus *a, const struct view *view); /* overwrites a->message */
void peer_says(struct voter *p, uint64_t instance, uint64_t epoch,
               const struct digest *digest);             /* the peer is in this view */
void take_view(struct consensus *a, struct voter *from); /* in a->scratch */
/* It is in our instance, and neither in our view nor in an earlier one. */
bool peer_disagrees(const struct consensus *a, const struct voter *p);
void evidence_think(struct consensus *a);
uint64_t evidence_deadline(const struct consensus *a);

/* consensus_events.c */
struct hearth_event *event_add(struct consensus *a, enum hearth_event_kind kind,
                               const struct peer_info *node);
void event_text(struct hearth_event *event, const char *format, ...) __attribute__((format(printf, 2, 3)));
void event_view(struct consensus *a, const struct view *old); /* joined, left, leader, view */
void event_quorum(struct consensus *a);
void copied_key_check(struct consensus *a, struct voter *p);
bool copied_key(const struct peer_info *a, const struct peer_info *b);
