/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a consensus: what its files share. */
#pragma once

#include "core/prng.h"
#include "membership/consensus.h"
#include "security/digest.h"

#define PEERS_MAX 192 /* nodes we are joined to, and members we are not joined to */
#define PAST_MAX  64  /* instances we have been in */
#define PROXY_MAX 8   /* members that left and gave us their vote */

#define GATHER_NS (40 * NS_PER_MS) /* changes that come together make one view */
#define TRIES_MIN 2                /* a call after so many others is heard though one's own leader lives */

/* Terms rise by one with each call, epochs with each view. A peer that speaks of a term that is so much later
 * than all we know is far ahead of us, or lies: we follow by this step for each message, and vote when we are
 * near. A node that is more epochs behind than that joins anew. So no message can use up the numbers: that
 * takes 2^42. */
#define TERM_STEP  (UINT64_C(1) << 16)
#define EPOCH_STEP (UINT64_C(1) << 20)
#define JOIN_MAX   (UINT64_C(1) << 48) /* of both, in an instance that is worth joining */

/* ---- messages (consensus_messages.c) ---- */

#define BEAT_QUORUM 1u  /* of the leader: a quorum is heard */
#define BEAT_BUSY   2u  /* of the leader: a job runs */
#define BEAT_WORKED 4u  /* a job ran in this instance, now or before */
#define BEAT_LEADS  8u  /* the sender is the leader of its view */
#define BEAT_BEGUN  16u /* of the leader: a job runs, perhaps since a moment ago only */

struct beat {
    uint64_t stamp_ns;         /* the sender's clock: comes back as echo */
    uint64_t echo_ns, hold_ns; /* stamp of your last beat, and how long ago it came; 0: none has */
    uint64_t instance, epoch;  /* of the sender's view */
    uint64_t request;          /* the instance it wants to join, 0: none */
    uint64_t request_after;    /* it has been there up to this epoch: only a later one takes it in */
    uint16_t size;             /* of its view */
    uint8_t flags;             /* BEAT_ */
    uint32_t every_ms;         /* so often the sender wants to hear from you */
    struct digest digest;      /* of the sender's view */
};
#define BEAT_LEN 80
#define TERM_MAX (UINT64_MAX / 2) /* there is always a next one */

static inline bool term_sane(uint64_t term)
{
    return term != 0 && term <= TERM_MAX;
}

struct vote_request {
    uint64_t instance, epoch, term;
    uint32_t tries; /* calls before this one without success */
};
#define CALL_LEN 32

/* VOTE and ACCEPT have one shape: the answer of an acceptor. LEAVE too: its last state. */
struct answer {
    uint64_t instance, epoch; /* where the acceptor stands */
    uint64_t term;            /* that was asked for; LEAVE: 1 + the heir's place in the view, 0: none */
    uint64_t promised;        /* by the acceptor */
    uint64_t accepted_term;   /* VOTE, LEAVE: of the view behind it; 0: there is none */
    bool yes;                 /* LEAVE: you have my vote from now on */
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

/* ---- the machine ---- */

/* A view that somebody is in, or has accepted in this term. */
struct ballot {
    uint64_t instance, epoch, term;
    struct digest digest;
};

struct voter {
    struct peer_info info; /* as it described itself last */
    struct health health;
    int index;            /* in our view, -1: not in it */
    bool left;            /* it said that it goes */
    int heir;             /* and gave its vote to this member of our view; -1: to nobody */
    bool told;            /* `beat` has come */
    bool copied;          /* its key is on another machine too */
    bool conflict_told;   /* that its instance and ours are both busy */
    struct beat beat;     /* the last one */
    uint64_t beat_at_ns;  /* when it came */
    uint64_t answered_ns; /* the last stamp of ours that came back */
    uint64_t stray_ok_ns; /* until then it may say that it is in another instance */
    uint64_t view_at_ns;  /* when we sent it a view last */
    uint64_t view_epoch;  /* which */
    struct ballot view;   /* that it is in, as it says; no term */
    struct ballot accept; /* what it has accepted last, as it says */
};

enum campaign_phase { CAMPAIGN_NONE, CAMPAIGN_CALLING, CAMPAIGN_PROPOSING };

struct campaign {
    enum campaign_phase phase;
    uint64_t term;              /* the ballot */
    uint32_t tries;             /* without success */
    bool yes[VIEW_MEMBERS_MAX]; /* votes, then acceptances */
    bool no[VIEW_MEMBERS_MAX];  /* refusals that are for good */
    uint64_t best_term;         /* of the view that voters had accepted; 0: none */
    uint64_t resend_ns, end_ns; /* when to say it again; when calling has failed */
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
    uint64_t think_ns; /* when thinking is due though nothing happened */
    enum consensus_state state;
    bool stir;                    /* something changed: think it over */
    bool announce;                /* a beat to everybody, at once */
    bool has_quorum, quorum_told; /* as it is; as people know it */
    bool busy;                    /* as we were told; it counts while we lead */
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
    bool accepted_inherited; /* not by us, but by one that left and gave us its vote */
    struct identity proxies[PROXY_MAX];
    int proxy_count;

    /* views that others speak of */
    struct view offered; /* nothing proves it yet; size 0: none */
    struct digest offered_digest;
    uint64_t apart_ns; /* since when others are in another view of our instance; 0: they are not */

    /* as a candidate or leader */
    struct campaign campaign;
    struct view proposal;
    struct digest proposal_digest;
    uint64_t seen_term;      /* the highest anybody spoke of, in steps */
    uint64_t leader_lost_ns; /* since when; 0: it lives */
    uint64_t change_ns;      /* when the next view is to be proposed; NEVER_NS: nothing to change */

    /* between instances */
    uint64_t request, request_end_ns, request_pause_ns;
    uint64_t dissolve_ns; /* when to tell our members again */
    struct past past[PAST_MAX];
    int past_count;

    struct voter *peers[PEERS_MAX];
    int peer_count;
    struct voter *member[VIEW_MEMBERS_MAX]; /* of each index; NULL: ourselves, or no memory for it */
    struct view scratch;                    /* of the message at hand */
    uint8_t message[VIEW_LEN_MAX + 64];     /* being written */

    struct event_log *events;
    struct consensus_counts counts;
};

/* consensus.c */
bool self_leads(const struct consensus *a);                            /* we are the leader of our view */
bool proxy_held(const struct consensus *a, const struct identity *id); /* it left, and gave us its vote */
struct voter *peer_find(const struct consensus *a, const struct identity *id);
void members_link(struct consensus *a); /* indices and peers of the present view */
bool member_gone(const struct consensus *a, int index);
bool member_present(const struct consensus *a, int index);
void view_copy(struct view *to, const struct view *from);
uint64_t answer_ns(const struct consensus *a); /* how long an answer may take before we ask again */
void send_message(struct consensus *a, const struct identity *to, uint8_t kind, const struct writer *w);
void send_beat(struct consensus *a, struct voter *p);
void send_to_others(struct consensus *a, uint8_t kind, const struct writer *w); /* members but ourselves */
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
void send_accept(struct consensus *a, struct voter *p); /* if we have accepted anything */
void vote_decided(struct consensus *a);                 /* what we have accepted */
void take_leave(struct consensus *a, struct voter *from, const struct answer *answer);
struct voter *vote_heir(const struct consensus *a); /* who gets our vote when we leave; NULL: nobody */

/* consensus_change.c: the next view */
bool change_wanted(const struct consensus *a);
void change_build(struct consensus *a, uint64_t term); /* into a->proposal */
/* It knows of views so far ahead that ours will not get there soon: it or we were lied to. */
bool change_out_of_reach(const struct consensus *a, const struct voter *p);
bool change_admits(const struct consensus *a, const struct voter *p);

/* consensus_instance.c: from view to view, from instance to instance */
void instance_found(struct consensus *a);
/* It is later than ours in our instance, or takes us into the one we request to join. */
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
               const struct digest *digest);             /* is in it */
void take_view(struct consensus *a, struct voter *from); /* in a->scratch */
/* It is in our instance, and neither in our view nor in one before it. */
bool peer_disagrees(const struct consensus *a, const struct voter *p);
void evidence_think(struct consensus *a);
uint64_t evidence_deadline(const struct consensus *a);

/* consensus_events.c */
struct hearth_event *event_add(struct consensus *a, enum hearth_event_kind kind, const struct peer_info *who);
void event_text(struct hearth_event *event, const char *format, ...) __attribute__((format(printf, 2, 3)));
void event_view(struct consensus *a, const struct view *old); /* joined, left, leader, view */
void event_quorum(struct consensus *a);
void copied_key_check(struct consensus *a, struct voter *p);
bool copied_key(const struct peer_info *a, const struct peer_info *b);
