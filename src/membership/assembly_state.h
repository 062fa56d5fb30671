/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an assembly: what its files share. */
#ifndef MEMBERSHIP_ASSEMBLY_STATE_H
#define MEMBERSHIP_ASSEMBLY_STATE_H

#include "core/prng.h"
#include "membership/assembly.h"
#include "security/digest.h"

#define PEERS_MAX  192 /* nodes we are joined to, and members we are not joined to */
#define PAST_MAX   64  /* instances we have been in */
#define PROXY_MAX  8   /* members that left and gave us their vote */
#define EVENTS_MAX 256

#define GATHER_NS (40 * NS_PER_MS) /* changes that come together make one census */
#define TRIES_MIN 2                /* a call after so many others is heard though one's own leader lives */

/* Terms rise by one with each call, epochs with each view. A peer that speaks of a term that is so much later
 * than all we know is far ahead of us, or lies: we follow by this step for each letter, and vote when we are
 * near. A node that is more epochs behind than that joins anew. So no letter can use up the numbers: that
 * takes 2^42. */
#define TERM_STEP  (UINT64_C(1) << 16)
#define EPOCH_STEP (UINT64_C(1) << 20)
#define JOIN_MAX   (UINT64_C(1) << 48) /* of both, in an instance that is worth joining */

/* ---- letters (assembly_letters.c) ---- */

#define BEAT_QUORUM 1u  /* of the leader: a quorum is heard */
#define BEAT_BUSY   2u  /* of the leader: a job runs */
#define BEAT_WORKED 4u  /* a job ran in this instance, now or before */
#define BEAT_LEADS  8u  /* the sender is the leader of its census */
#define BEAT_BEGUN  16u /* of the leader: a job runs, perhaps since a moment ago only */

struct beat {
    uint64_t stamp_ns;         /* the sender's clock: comes back as echo */
    uint64_t echo_ns, hold_ns; /* stamp of your last beat, and how long ago it came; 0: none has */
    uint64_t instance, epoch;  /* of the sender's census */
    uint64_t wish;             /* the instance it wants to join, 0: none */
    uint64_t wish_after;       /* it has been there up to this epoch: only a later one takes it in */
    uint16_t size;             /* of its census */
    uint8_t flags;             /* BEAT_ */
    uint32_t every_ms;         /* so often the sender wants to hear from you */
    struct digest digest;      /* of the sender's census */
};
#define BEAT_LEN 80
#define TERM_MAX (UINT64_MAX / 2) /* there is always a next one */

static inline bool term_sane(uint64_t term)
{
    return term != 0 && term <= TERM_MAX;
}

struct call {
    uint64_t instance, epoch, term;
    uint32_t tries; /* calls before this one without success */
};
#define CALL_LEN 32

/* VOTE and ACCEPT have one shape: the answer of an acceptor. LEAVE too: its last state. */
struct answer {
    uint64_t instance, epoch; /* where the acceptor stands */
    uint64_t term;            /* that was asked for; LEAVE: 1 + the heir's place in the census, 0: none */
    uint64_t promised;        /* by the acceptor */
    uint64_t accepted_term;   /* VOTE, LEAVE: of the census behind it; 0: there is none */
    bool yes;                 /* LEAVE: you have my vote from now on */
    struct digest digest;     /* ACCEPT: of the census that was proposed */
};
#define ANSWER_LEN 64

void beat_put(struct writer *w, const struct beat *b);
bool beat_get(struct reader *r, struct beat *b);
void call_put(struct writer *w, const struct call *c);
bool call_get(struct reader *r, struct call *c);
/* `accepted` NULL, or valid if accepted_term is not 0. */
void answer_put(struct writer *w, const struct answer *a, const struct census *accepted);
bool answer_get(struct reader *r, struct answer *a, struct census *accepted);

/* ---- the machine ---- */

/* A view that somebody is in, or has accepted in this term. */
struct ballot {
    uint64_t instance, epoch, term;
    struct digest digest;
};

struct peer {
    struct fellow fellow; /* as it described itself last */
    struct health health;
    int index;             /* in our census, -1: not in it */
    bool left;             /* it said that it goes */
    int heir;              /* and gave its vote to this member of our census; -1: to nobody */
    bool told;             /* `beat` has come */
    bool copied;           /* its key is on another machine too */
    bool conflict_told;    /* that its instance and ours are both busy */
    struct beat beat;      /* the last one */
    uint64_t beat_at_ns;   /* when it came */
    uint64_t answered_ns;  /* the last stamp of ours that came back */
    uint64_t stray_ok_ns;  /* until then it may say that it is in another instance */
    uint64_t census_at_ns; /* when we sent it a census last */
    uint64_t census_epoch; /* which */
    struct ballot view;    /* that it is in, as it says; no term */
    struct ballot accept;  /* what it has accepted last, as it says */
};

enum campaign_phase { CAMPAIGN_NONE, CAMPAIGN_CALLING, CAMPAIGN_PROPOSING };

struct campaign {
    enum campaign_phase phase;
    uint64_t term;                /* the ballot */
    uint32_t tries;               /* without success */
    bool yes[CENSUS_MEMBERS_MAX]; /* votes, then acceptances */
    bool no[CENSUS_MEMBERS_MAX];  /* refusals that are for good */
    uint64_t best_term;           /* of the census that voters had accepted; 0: none */
    uint64_t resend_ns, end_ns;   /* when to say it again; when calling has failed */
    uint64_t not_before_ns;       /* pause after a failure */
};

struct past {
    uint64_t instance, epoch;
};

struct assembly {
    struct heap *heap;
    struct log log;
    struct outbox *outbox;
    struct fellow self;
    const struct health_preset *preset;
    uint64_t answer_ns; /* see answer_ns() */
    struct prng prng;
    uint64_t now_ns;
    uint64_t think_ns; /* when thinking is due though nothing happened */
    enum assembly_state state;
    bool stir;                    /* something changed: think it over */
    bool announce;                /* a beat to everybody, at once */
    bool has_quorum, quorum_told; /* as it is; as people know it */
    bool busy;                    /* as we were told; it counts while we lead */
    bool begun;                   /* likewise */
    bool worked;                  /* a job ran in this instance */
    uint64_t stranded_ns;         /* since when; valid while there is no quorum */
    uint64_t anew_jitter_ns;

    /* as an acceptor */
    struct census census;
    struct digest digest;   /* of it */
    struct census previous; /* the one before, of whatever instance */
    uint64_t adopted_ns;
    int me; /* index of ourselves */
    uint64_t promised;
    struct identity voted_for; /* in the promised term */
    uint64_t accepted_term;    /* 0: nothing accepted for the next epoch */
    struct census accepted;
    struct digest accepted_digest;
    bool accepted_inherited; /* not by us, but by one that left and gave us its vote */
    struct identity proxies[PROXY_MAX];
    int proxy_count;

    /* views that others speak of */
    struct census offered; /* nothing proves it yet; size 0: none */
    struct digest offered_digest;
    uint64_t apart_ns; /* since when others are in another view of our instance; 0: they are not */

    /* as a candidate or leader */
    struct campaign campaign;
    struct census proposal;
    struct digest proposal_digest;
    uint64_t seen_term;      /* the highest anybody spoke of, in steps */
    uint64_t leader_lost_ns; /* since when; 0: it lives */
    uint64_t change_ns;      /* when the next census is to be proposed; NEVER_NS: nothing to change */

    /* between instances */
    uint64_t wish, wish_end_ns, wish_pause_ns;
    uint64_t dissolve_ns; /* when to tell our members again */
    struct past past[PAST_MAX];
    int past_count;

    struct peer *peers[PEERS_MAX];
    int peer_count;
    struct peer *member[CENSUS_MEMBERS_MAX]; /* of each index; NULL: ourselves, or no memory for it */
    struct census scratch;                   /* of the letter at hand */
    uint8_t letter[CENSUS_LEN_MAX + 64];     /* being written */

    struct assembly_event *events;
    int event_first, event_count;
    struct assembly_counts counts;
};

/* assembly.c */
bool self_leads(const struct assembly *a);                            /* we are the leader of our census */
bool proxy_held(const struct assembly *a, const struct identity *id); /* it left, and gave us its vote */
struct peer *peer_find(const struct assembly *a, const struct identity *id);
void members_link(struct assembly *a); /* indices and peers of the present census */
bool member_gone(const struct assembly *a, int index);
bool member_present(const struct assembly *a, int index);
void census_copy(struct census *to, const struct census *from);
uint64_t answer_ns(const struct assembly *a); /* how long an answer may take before we ask again */
void send_letter(struct assembly *a, const struct identity *to, uint8_t kind, const struct writer *w);
void send_beat(struct assembly *a, struct peer *p);
void send_to_others(struct assembly *a, uint8_t kind, const struct writer *w); /* members but ourselves */
struct writer letter_begin(struct assembly *a);
void send_census(struct assembly *a, struct peer *p);

/* assembly_vote.c */
void vote_reset(struct assembly *a); /* no campaign */
void vote_think(struct assembly *a);
uint64_t vote_deadline(const struct assembly *a);
bool term_near(const struct assembly *a, uint64_t term); /* to those that we know */
void take_call(struct assembly *a, struct peer *from, const struct call *call);
void take_vote(struct assembly *a, struct peer *from, const struct answer *answer);
void take_propose(struct assembly *a, struct peer *from, uint64_t term);
void take_accept(struct assembly *a, struct peer *from, const struct answer *answer);
void send_accept(struct assembly *a, struct peer *p); /* if we have accepted anything */
void vote_decided(struct assembly *a);                /* what we have accepted */
void take_leave(struct assembly *a, struct peer *from, const struct answer *answer);
struct peer *vote_heir(const struct assembly *a); /* who gets our vote when we leave; NULL: nobody */

/* assembly_change.c: the next census */
bool change_wanted(const struct assembly *a);
void change_build(struct assembly *a, uint64_t term); /* into a->proposal */
/* It knows of views so far ahead that ours will not get there soon: it or we were lied to. */
bool change_out_of_reach(const struct assembly *a, const struct peer *p);
bool change_admits(const struct assembly *a, const struct peer *p);

/* assembly_instance.c: from census to census, from instance to instance */
void instance_found(struct assembly *a);
/* It is later than ours in our instance, or takes us into the one we wish to join. */
bool instance_wants(const struct assembly *a, const struct census *census);
void instance_adopt(struct assembly *a, const struct census *census);   /* decided; if we want it */
uint64_t instance_left_at(const struct assembly *a, uint64_t instance); /* epoch; 0: never been there */
void instance_think(struct assembly *a);
uint64_t instance_deadline(const struct assembly *a);
void take_dissolve(struct assembly *a, struct peer *from, uint64_t instance, uint64_t target);
bool instance_better(const struct assembly *a, const struct peer *leader); /* than ours */

/* assembly_evidence.c: which views of others are believed */
struct digest view_digest(struct assembly *a, const struct census *census); /* overwrites a->letter */
void peer_says(struct peer *p, uint64_t instance, uint64_t epoch, const struct digest *digest); /* is in it */
void take_census(struct assembly *a, struct peer *from); /* in a->scratch */
/* It is in our instance, and neither in our view nor in one before it. */
bool peer_disagrees(const struct assembly *a, const struct peer *p);
void evidence_think(struct assembly *a);
uint64_t evidence_deadline(const struct assembly *a);

/* assembly_events.c */
struct assembly_event *event_add(struct assembly *a, enum assembly_event_kind kind, const struct fellow *who);
void event_text(struct assembly_event *event, const char *format, ...) __attribute__((format(printf, 2, 3)));
void event_census(struct assembly *a, const struct census *old); /* joined, left, leader, view */
void event_quorum(struct assembly *a);
void copied_key_check(struct assembly *a, struct peer *p);
bool copied_key(const struct fellow *a, const struct fellow *b);

#endif
