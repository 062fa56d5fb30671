/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement on the next census: one decree of Paxos for each epoch. Members of the present census are the
 * acceptors, terms are the ballots. */
#include <string.h>

#include "membership/assembly_state.h"

#define LONG_TRY 3 /* a proposal may take so many times as long as a call */

/* ---- who stands where in line ---- */

static bool votes(const struct assembly *a, int index)
{
    return census_votes(&a->census, index);
}

static bool is_voter(const struct assembly *a, const struct peer *p)
{
    return p->index >= 0 && votes(a, p->index);
}

/* Living voters that are more senior than we, the leader not counted. */
static int place_in_line(const struct assembly *a)
{
    int place = 0;
    for (int i = 0; i < a->me; i++)
        place += i != a->census.leader && votes(a, i) && member_present(a, i);
    return place;
}

struct peer *vote_heir(const struct assembly *a)
{
    if (!votes(a, a->me))
        return NULL;
    if (!self_leads(a) && member_present(a, a->census.leader))
        return a->member[a->census.leader];
    for (int i = 0; i < a->census.size; i++)
        if (i != a->me && votes(a, i) && member_present(a, i))
            return a->member[i];
    return NULL;
}

/* It says itself that it hears too few; whoever hears enough does better. */
static bool leader_stranded(const struct assembly *a)
{
    const struct peer *p = a->member[a->census.leader];
    if (self_leads(a))
        return !a->has_quorum;
    return p != NULL && p->told && p->beat.instance == a->census.instance &&
           p->beat.epoch == a->census.epoch && (p->beat.flags & BEAT_LEADS) && !(p->beat.flags & BEAT_QUORUM);
}

/* Whether there is no need for a candidate. A leader that is in a view which nothing proves makes room: if it
 * was decided, its successor finds that. */
static bool leader_serves(const struct assembly *a)
{
    const struct peer *p = a->member[a->census.leader];
    return !member_gone(a, a->census.leader) && !leader_stranded(a) && (p == NULL || !peer_disagrees(a, p));
}

/* ---- as a candidate and leader ---- */

static uint64_t jitter(struct assembly *a, uint64_t span_ns)
{
    return prng_below(&a->prng, span_ns + 1);
}

void vote_reset(struct assembly *a)
{
    memset(&a->campaign, 0, sizeof(a->campaign));
}

static bool have_quorum(const struct assembly *a)
{
    return census_quorum(&a->census, a->campaign.yes);
}

/* Those who have not refused and can be heard are enough. */
static bool can_win(const struct assembly *a)
{
    bool may[CENSUS_MEMBERS_MAX];
    for (int i = 0; i < a->census.size; i++)
        may[i] = a->campaign.yes[i] || (!a->campaign.no[i] && member_present(a, i));
    return census_quorum(&a->census, may);
}

static void own_yes(struct assembly *a)
{
    memset(a->campaign.yes, 0, sizeof(a->campaign.yes));
    memset(a->campaign.no, 0, sizeof(a->campaign.no));
    a->campaign.yes[a->me] = true;
    for (int i = 0; i < a->proxy_count; i++) {
        int index = census_find(&a->census, &a->proxies[i]);
        if (index >= 0)
            a->campaign.yes[index] = true;
    }
}

static void campaign_failed(struct assembly *a)
{
    uint32_t tries = a->campaign.tries + 1;
    uint64_t pause = jitter(a, answer_ns(a) / 2 * (tries < 8 ? tries : 8));
    vote_reset(a);
    a->campaign.tries = tries;
    a->campaign.not_before_ns = a->now_ns + pause;
    a->counts.elections_timed_out++;
    a->stir = true;
}

static void say_again_later(struct assembly *a)
{
    a->campaign.resend_ns = a->now_ns + answer_ns(a) / 3;
}

/* A voter whose answer we wait for. */
static bool is_asked(const struct assembly *a, int index)
{
    return votes(a, index) && !a->campaign.yes[index] && !a->campaign.no[index] && a->member[index] != NULL;
}

static void send_proposal(struct assembly *a)
{
    for (int i = 0; i < a->census.size; i++) {
        if (!is_asked(a, i))
            continue;
        struct writer w = letter_begin(a);
        put_u64(&w, a->campaign.term);
        census_put(&w, &a->proposal);
        send_letter(a, &a->census.members[i].id, LETTER_PROPOSE, &w);
    }
    say_again_later(a);
}

static void send_calls(struct assembly *a)
{
    struct call call = {a->census.instance, a->census.epoch, a->campaign.term, a->campaign.tries};
    for (int i = 0; i < a->census.size; i++) {
        if (!is_asked(a, i))
            continue;
        struct writer w = letter_begin(a);
        call_put(&w, &call);
        send_letter(a, &a->census.members[i].id, LETTER_CALL, &w);
    }
    say_again_later(a);
}

/* Enough have accepted: it is so, and everybody whom it concerns learns it. */
static void decide(struct assembly *a)
{
    struct writer w = letter_begin(a);
    bool led = self_leads(a);
    census_put(&w, &a->proposal);
    for (int i = 0; i < a->census.size; i++)
        if (a->member[i] != NULL && census_find(&a->proposal, &a->census.members[i].id) < 0)
            send_letter(a, &a->census.members[i].id, LETTER_CENSUS, &w); /* it is out */
    uint64_t instance = a->census.instance;
    instance_adopt(a, &a->proposal);
    if (a->census.instance != instance)
        return; /* somebody's proposal without us: we have begun anew */
    if (!led && self_leads(a))
        a->counts.elections_won++;
    for (int i = 0; i < a->census.size; i++)
        if (a->member[i] != NULL)
            send_census(a, a->member[i]);
}

void vote_decided(struct assembly *a)
{
    bool ours = a->campaign.phase == CAMPAIGN_PROPOSING && a->campaign.term == a->accepted_term;
    if (ours)
        decide(a);
    else
        instance_adopt(a, &a->accepted);
}

static void accept(struct assembly *a, uint64_t term, const struct census *census,
                   const struct digest *digest)
{
    a->accepted_term = term;
    a->accepted_inherited = false;
    a->accepted_digest = *digest;
    census_copy(&a->accepted, census);
}

/* a->proposal in the ballot `term`, which is ours. */
static void propose(struct assembly *a, uint64_t term)
{
    if (term < a->promised) { /* a vote that we inherited is given away already */
        campaign_failed(a);
        return;
    }
    a->campaign.phase = CAMPAIGN_PROPOSING;
    a->campaign.term = term;
    a->campaign.end_ns = a->now_ns + LONG_TRY * answer_ns(a);
    a->proposal_digest = view_digest(a, &a->proposal);
    accept(a, term, &a->proposal, &a->proposal_digest);
    own_yes(a);
    if (have_quorum(a))
        decide(a);
    else
        send_proposal(a);
}

/* What voters had accepted goes first: it may be decided already. */
static void propose_as_elected(struct assembly *a)
{
    if (a->campaign.best_term == 0)
        change_build(a, a->campaign.term);
    propose(a, a->campaign.term);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t known_term(const struct assembly *a)
{
    return later(later(a->seen_term, a->promised), a->census.term);
}

bool term_near(const struct assembly *a, uint64_t term)
{
    return term <= known_term(a) + TERM_STEP;
}

static void call_for_votes(struct assembly *a)
{
    struct campaign *c = &a->campaign;
    c->phase = CAMPAIGN_CALLING;
    c->term = known_term(a) + 1;
    c->end_ns = a->now_ns + answer_ns(a) + jitter(a, answer_ns(a) / 4);
    a->promised = c->term;
    a->voted_for = a->self.id;
    a->counts.elections_started++;
    own_yes(a);
    c->best_term = a->accepted_term;
    if (c->best_term != 0)
        census_copy(&a->proposal, &a->accepted);
    if (have_quorum(a))
        propose_as_elected(a);
    else
        send_calls(a);
}

/* We lead, and there is something to change. */
static void change(struct assembly *a)
{
    a->change_ns = NEVER_NS;
    /* In this term nobody else may propose, and we have not yet. */
    bool free = a->promised == a->census.term && a->accepted_term == 0;
    if (!free) {
        call_for_votes(a);
        return;
    }
    change_build(a, a->census.term);
    propose(a, a->census.term);
}

static uint64_t my_turn_ns(const struct assembly *a)
{
    uint64_t turn = a->leader_lost_ns + (uint64_t)place_in_line(a) * answer_ns(a) / 2;
    if (!member_gone(a, a->census.leader))
        turn += answer_ns(a); /* it may still find its members */
    return later(turn, a->campaign.not_before_ns);
}

static void think_of_change(struct assembly *a)
{
    if (!change_wanted(a))
        a->change_ns = NEVER_NS;
    else if (a->change_ns == NEVER_NS)
        a->change_ns = later(a->now_ns + GATHER_NS, a->campaign.not_before_ns);
    if (a->now_ns >= a->change_ns)
        change(a);
}

static void think_of_leader(struct assembly *a)
{
    if (self_leads(a) || leader_serves(a) || !votes(a, a->me))
        a->leader_lost_ns = 0;
    else if (a->leader_lost_ns == 0)
        a->leader_lost_ns = a->now_ns;
}

void vote_think(struct assembly *a)
{
    think_of_leader(a);
    switch (a->campaign.phase) {
    case CAMPAIGN_NONE:
        if (a->wish != 0 || !a->has_quorum)
            break;
        if (self_leads(a))
            think_of_change(a);
        else if (a->leader_lost_ns != 0 && a->now_ns >= my_turn_ns(a))
            call_for_votes(a);
        break;
    case CAMPAIGN_CALLING:
        if (a->now_ns >= a->campaign.end_ns || !can_win(a))
            campaign_failed(a);
        else if (a->now_ns >= a->campaign.resend_ns)
            send_calls(a);
        break;
    case CAMPAIGN_PROPOSING:
        if (a->now_ns >= a->campaign.end_ns)
            campaign_failed(a);
        else if (a->now_ns >= a->campaign.resend_ns)
            send_proposal(a);
        break;
    }
}

uint64_t vote_deadline(const struct assembly *a)
{
    const struct campaign *c = &a->campaign;
    if (c->phase != CAMPAIGN_NONE)
        return c->end_ns < c->resend_ns ? c->end_ns : c->resend_ns;
    if (a->wish != 0 || !a->has_quorum)
        return NEVER_NS;
    if (self_leads(a))
        return a->change_ns;
    return a->leader_lost_ns != 0 ? my_turn_ns(a) : NEVER_NS;
}

/* ---- as an acceptor ---- */

/* Takes notice of a term; false: it is too far ahead to be followed at once. */
static bool see_term(struct assembly *a, uint64_t term)
{
    bool near = term_near(a, term);
    a->seen_term = later(a->seen_term, near ? term : known_term(a) + TERM_STEP);
    return near;
}

/* Whether a question about the epoch after `epoch` is for us; if not, the other one learns where we are. */
static bool concerns_us(struct assembly *a, struct peer *from, uint64_t instance, uint64_t epoch)
{
    if (instance == a->census.instance && epoch == a->census.epoch)
        return is_voter(a, from) && votes(a, a->me);
    if (instance == a->census.instance && epoch < a->census.epoch)
        send_census(a, from);
    else
        send_beat(a, from);
    return false;
}

static struct answer answer_of(const struct assembly *a, uint64_t term, bool yes)
{
    return (struct answer){.instance = a->census.instance,
                           .epoch = a->census.epoch,
                           .term = term,
                           .promised = a->promised,
                           .yes = yes};
}

void take_call(struct assembly *a, struct peer *from, const struct call *call)
{
    if (!concerns_us(a, from, call->instance, call->epoch))
        return;
    bool near = see_term(a, call->term);
    bool again = call->term == a->promised && identity_equal(&a->voted_for, &from->fellow.id);
    bool content = from->index == a->census.leader || call->tries >= TRIES_MIN || !leader_serves(a);
    bool yes = again || (near && content && call->term > a->promised);
    if (yes && !again) {
        a->promised = call->term;
        a->voted_for = from->fellow.id;
        if (a->campaign.phase == CAMPAIGN_CALLING)
            campaign_failed(a);
        a->campaign.not_before_ns =
            later(a->campaign.not_before_ns, a->now_ns + answer_ns(a) + jitter(a, answer_ns(a) / 2));
    }
    struct answer answer = answer_of(a, call->term, yes);
    answer.accepted_term = yes ? a->accepted_term : 0;
    struct writer w = letter_begin(a);
    answer_put(&w, &answer, &a->accepted);
    send_letter(a, &from->fellow.id, LETTER_VOTE, &w);
}

/* An answer to what we ask at the moment. */
static bool answers_us(struct assembly *a, const struct peer *from, const struct answer *answer,
                       enum campaign_phase phase)
{
    if (answer->instance != a->census.instance)
        return false;
    (void)see_term(a, answer->promised);
    return answer->epoch == a->census.epoch && is_voter(a, from) && a->campaign.phase == phase &&
           answer->term == a->campaign.term;
}

/* What somebody says to have accepted, in a->scratch: before this term, and after our view was decided. */
static bool may_be_accepted(const struct assembly *a, const struct answer *answer, uint64_t before)
{
    return answer->accepted_term == 0 ||
           (answer->accepted_term < before && answer->accepted_term >= a->scratch.term &&
            a->scratch.term >= a->census.term);
}

void take_vote(struct assembly *a, struct peer *from, const struct answer *answer)
{
    if (!answers_us(a, from, answer, CAMPAIGN_CALLING) || !may_be_accepted(a, answer, a->campaign.term))
        return;
    if (!answer->yes) {
        a->campaign.no[from->index] = true;
        a->stir = true;
        return;
    }
    a->campaign.yes[from->index] = true;
    if (answer->accepted_term > a->campaign.best_term) {
        a->campaign.best_term = answer->accepted_term;
        census_copy(&a->proposal, &a->scratch);
    }
    if (have_quorum(a))
        propose_as_elected(a);
}

void send_accept(struct assembly *a, struct peer *p)
{
    if (a->accepted_term == 0 || a->accepted_inherited || p->index < 0)
        return;
    struct answer answer = answer_of(a, a->accepted_term, true);
    struct writer w = letter_begin(a);
    answer.digest = a->accepted_digest;
    answer_put(&w, &answer, NULL);
    send_letter(a, &p->fellow.id, LETTER_ACCEPT, &w);
}

/* Only its proposer can have made it, and it goes on from our view. */
static bool may_be_proposed(const struct assembly *a, const struct peer *from, uint64_t term)
{
    const struct census *next = &a->scratch;
    bool fresh = next->term == term;
    return next->term >= a->census.term &&
           (!fresh || identity_equal(&next->members[next->leader].id, &from->fellow.id));
}

/* The census proposed is in a->scratch. We accept it from whom we have voted for, and one in a term. */
void take_propose(struct assembly *a, struct peer *from, uint64_t term)
{
    if (!concerns_us(a, from, a->scratch.instance, a->scratch.epoch - 1) || !may_be_proposed(a, from, term))
        return;
    (void)see_term(a, term);
    struct digest digest = view_digest(a, &a->scratch);
    from->accept = (struct ballot){a->scratch.instance, a->scratch.epoch, term, digest};
    a->stir = true;
    bool yes = term == a->promised && identity_equal(&a->voted_for, &from->fellow.id) &&
               (a->accepted_term != term || digest_equal(&a->accepted_digest, &digest));
    if (!yes) {
        struct answer answer = answer_of(a, term, false);
        struct writer w = letter_begin(a);
        answer.digest = digest;
        answer_put(&w, &answer, NULL);
        send_letter(a, &from->fellow.id, LETTER_ACCEPT, &w);
        return;
    }
    accept(a, term, &a->scratch, &digest);
    for (int i = 0; i < a->census.size; i++)
        if (a->member[i] != NULL)
            send_accept(a, a->member[i]);
}

void take_accept(struct assembly *a, struct peer *from, const struct answer *answer)
{
    bool here = answer->instance == a->census.instance && answer->epoch == a->census.epoch;
    if (answer->yes && here && is_voter(a, from)) {
        from->accept = (struct ballot){answer->instance, answer->epoch + 1, answer->term, answer->digest};
        a->stir = true;
    }
    if (!answers_us(a, from, answer, CAMPAIGN_PROPOSING) ||
        !digest_equal(&answer->digest, &a->proposal_digest))
        return;
    if (answer->yes) {
        a->campaign.yes[from->index] = true;
        if (have_quorum(a))
            decide(a);
        return;
    }
    a->campaign.no[from->index] = true;
    if (!can_win(a))
        campaign_failed(a);
    a->stir = true;
}

/* Who leaves gives its vote to one of us, with all that it has promised and accepted: from now on we are this
 * acceptor, too. It will never speak again, so nobody else can be. */
static void inherit(struct assembly *a, const struct peer *from, const struct answer *answer)
{
    for (int i = 0; i < a->proxy_count; i++)
        if (identity_equal(&a->proxies[i], &from->fellow.id))
            return;
    if (a->proxy_count == PROXY_MAX || !see_term(a, answer->promised) ||
        !may_be_accepted(a, answer, answer->promised + 1))
        return;
    a->proxies[a->proxy_count++] = from->fellow.id;
    if (answer->promised > a->promised) {
        a->promised = answer->promised;
        a->voted_for = from->fellow.id;
    }
    if (answer->accepted_term > a->accepted_term) {
        struct digest digest = view_digest(a, &a->scratch);
        accept(a, answer->accepted_term, &a->scratch, &digest);
        a->accepted_inherited = true; /* in that term we ourselves may have promised otherwise */
    }
}

void take_leave(struct assembly *a, struct peer *from, const struct answer *answer)
{
    bool here = answer->instance == a->census.instance && answer->epoch == a->census.epoch;
    from->left = true;
    from->heir = here && answer->term <= CENSUS_MEMBERS_MAX ? (int)answer->term - 1 : -1;
    a->stir = true;
    if (answer->yes && here && is_voter(a, from) && votes(a, a->me))
        inherit(a, from, answer);
}
