/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement on the next view: one decree of Paxos for each epoch. The voters of the current view are the
 * acceptors, terms are the ballots. */
#include <stdlib.h>
#include <string.h>

#include "membership/consensus_state.h"

#define LONG_TRY 3  /* a proposal may take so many times as long as a call */
#define REACH    64 /* epochs that a returning member may be ahead */

/* ---- the line of succession ---- */

static bool votes(const struct consensus *a, int index)
{
    return view_votes(&a->view, index);
}

static bool is_voter(const struct consensus *a, const struct voter *p)
{
    return p->index >= 0 && votes(a, p->index);
}

/* The number of living voters more senior than this node, without the leader. */
static int place_in_line(const struct consensus *a)
{
    int place = 0;
    for (int i = 0; i < a->me; i++)
        place += i != a->view.leader && votes(a, i) && member_present(a, i);
    return place;
}

struct voter *vote_heir(const struct consensus *a)
{
    if (!votes(a, a->me))
        return NULL;
    if (!self_leads(a) && member_present(a, a->view.leader))
        return a->member[a->view.leader];
    for (int i = 0; i < a->view.size; i++)
        if (i != a->me && votes(a, i) && member_present(a, i))
            return a->member[i];
    return NULL;
}

/* It reports that it hears no quorum; a candidate that hears one does better. */
static bool leader_stranded(const struct consensus *a)
{
    const struct voter *p = a->member[a->view.leader];
    if (self_leads(a))
        return !a->has_quorum;
    return p && p->told && p->beat.instance == a->view.instance && p->beat.epoch == a->view.epoch &&
           (p->beat.flags & BEAT_LEADS) && !(p->beat.flags & BEAT_QUORUM);
}

/* No candidate is needed. A leader in an unproven view is replaced: if the view was decided, its successor
 * finds that. */
static bool leader_serves(const struct consensus *a)
{
    const struct voter *p = a->member[a->view.leader];
    return !member_gone(a, a->view.leader) && !leader_stranded(a) && (!p || !peer_disagrees(a, p));
}

/* ---- the next view ---- */

static bool same_peer(const struct peer_info *a, const struct peer_info *b)
{
    uint8_t bytes[2][PEER_LEN_MAX];
    struct writer w[2] = {writer_of(bytes[0], PEER_LEN_MAX), writer_of(bytes[1], PEER_LEN_MAX)};
    peer_put(&w[0], a);
    peer_put(&w[1], b);
    size_t len = (size_t)(w[0].at - bytes[0]);
    return len == (size_t)(w[1].at - bytes[1]) && memcmp(bytes[0], bytes[1], len) == 0;
}

/* It is in our view, but has left since, and only a later view admits it again. */
static bool comes_again(const struct consensus *a, const struct voter *p)
{
    return p->index >= 0 && p->beat.request_after >= a->view.epoch;
}

bool change_out_of_reach(const struct consensus *a, const struct voter *p)
{
    return p->beat.request_after >= a->view.epoch + REACH;
}

static bool asks(const struct consensus *a, const struct voter *p)
{
    return p->health.linked && p->health.state != HEALTH_DEAD && !p->left && p->told &&
           p->beat.request == a->view.instance && (p->index < 0 || comes_again(a, p)) &&
           !change_out_of_reach(a, p);
}

/* A member on another machine has this key. */
static bool key_taken(const struct view *view, const struct peer_info *info)
{
    for (int i = 0; i < view->size; i++)
        if (copied_key(&view->members[i], info))
            return true;
    return false;
}

static bool change_admits(const struct consensus *a, const struct voter *p)
{
    return asks(a, p) && !key_taken(&a->view, &p->info);
}

/* The description of a member for the next view. */
static const struct peer_info *described(const struct consensus *a, int index)
{
    const struct voter *p = a->member[index];
    if (index == a->me)
        return &a->self;
    return p && p->health.linked ? &p->info : &a->view.members[index];
}

static bool change_wanted(const struct consensus *a)
{
    for (int i = 0; i < a->view.size; i++)
        if (member_gone(a, i) || !same_peer(described(a, i), &a->view.members[i]))
            return true;
    for (int i = 0; i < a->peer_count; i++)
        if (change_admits(a, a->peers[i]) && (a->view.size < VIEW_MEMBERS_MAX || a->peers[i]->index >= 0))
            return true;
    return false;
}

static int by_identity(const void *a, const void *b)
{
    const struct voter *const *p = a, *const *q = b;
    return identity_compare(&(*p)->info.id, &(*q)->info.id);
}

static void add_newcomers(struct consensus *a, struct view *next)
{
    struct voter *come[PEERS_MAX];
    size_t count = 0;
    for (int i = 0; i < a->peer_count; i++)
        if (asks(a, a->peers[i]))
            come[count++] = a->peers[i];
    if (count > 0)
        qsort(come, count, sizeof come[0], by_identity);
    for (size_t i = 0; i < count && next->size < VIEW_MEMBERS_MAX; i++)
        if (!key_taken(next, &come[i]->info))
            next->members[next->size++] = come[i]->info;
}

static void change_build(struct consensus *a, uint64_t term)
{
    struct view *next = &a->proposal;
    next->instance = a->view.instance;
    next->epoch = a->view.epoch + 1;
    next->term = term;
    next->size = 0;
    next->leader = 0;
    for (int i = 0; i < a->view.size; i++) {
        const struct voter *p = a->member[i];
        if (i == a->me)
            next->leader = next->size;
        else if (member_gone(a, i) || (p && asks(a, p)))
            continue;
        next->members[next->size++] = *described(a, i);
    }
    if (a->request == 0)
        add_newcomers(a, next);
}

/* ---- as a candidate and leader ---- */

static uint64_t jitter(struct consensus *a, uint64_t span_ns)
{
    return prng_below(&a->prng, span_ns + 1);
}

void vote_reset(struct consensus *a)
{
    memset(&a->campaign, 0, sizeof a->campaign);
}

static bool have_quorum(const struct consensus *a)
{
    return view_quorum(&a->view, a->campaign.yes);
}

/* The votes in hand and the open ones can make a quorum. */
static bool can_win(const struct consensus *a)
{
    bool may[VIEW_MEMBERS_MAX];
    for (int i = 0; i < a->view.size; i++)
        may[i] = a->campaign.yes[i] || (!a->campaign.no[i] && member_present(a, i));
    return view_quorum(&a->view, may);
}

static void own_yes(struct consensus *a)
{
    memset(a->campaign.yes, 0, sizeof a->campaign.yes);
    memset(a->campaign.no, 0, sizeof a->campaign.no);
    a->campaign.yes[a->me] = true;
    for (int i = 0; i < a->proxy_count; i++) {
        int index = view_find(&a->view, &a->proxies[i]);
        if (index >= 0)
            a->campaign.yes[index] = true;
    }
}

static void campaign_failed(struct consensus *a)
{
    uint32_t tries = a->campaign.tries + 1;
    uint64_t pause = jitter(a, answer_ns(a) / 2 * (tries < 8 ? tries : 8));
    vote_reset(a);
    a->campaign.tries = tries;
    a->campaign.not_before_ns = a->now_ns + pause;
    a->counts.elections_timed_out++;
    a->stir = true;
}

static void say_again_later(struct consensus *a)
{
    a->campaign.resend_ns = a->now_ns + answer_ns(a) / 3;
}

/* A voter whose answer is missing. */
static bool is_asked(const struct consensus *a, int index)
{
    return votes(a, index) && !a->campaign.yes[index] && !a->campaign.no[index] && a->member[index];
}

static void send_proposal(struct consensus *a)
{
    for (int i = 0; i < a->view.size; i++) {
        if (!is_asked(a, i))
            continue;
        struct writer w = message_begin(a);
        put_u64(&w, a->campaign.term);
        view_put(&w, &a->proposal);
        send_message(a, &a->view.members[i].id, MESSAGE_PROPOSE, &w);
    }
    say_again_later(a);
}

static void send_calls(struct consensus *a)
{
    struct vote_request call = {a->view.instance, a->view.epoch, a->campaign.term, a->campaign.tries};
    for (int i = 0; i < a->view.size; i++) {
        if (!is_asked(a, i))
            continue;
        struct writer w = message_begin(a);
        call_put(&w, &call);
        send_message(a, &a->view.members[i].id, MESSAGE_CALL, &w);
    }
    say_again_later(a);
}

/* A quorum has accepted the proposal: adopts it and tells all members, old and new. */
static void decide(struct consensus *a)
{
    struct writer w = message_begin(a);
    bool led = self_leads(a);
    view_put(&w, &a->proposal);
    for (int i = 0; i < a->view.size; i++)
        if (a->member[i] && view_find(&a->proposal, &a->view.members[i].id) < 0)
            send_message(a, &a->view.members[i].id, MESSAGE_VIEW, &w); /* it is removed */
    uint64_t instance = a->view.instance;
    instance_adopt(a, &a->proposal);
    if (a->view.instance != instance)
        return; /* an inherited proposal without us: we have founded a new instance */
    if (!led && self_leads(a))
        a->counts.elections_won++;
    for (int i = 0; i < a->view.size; i++)
        if (a->member[i])
            send_view(a, a->member[i]);
}

void vote_decided(struct consensus *a)
{
    bool ours = a->campaign.phase == CAMPAIGN_PROPOSING && a->campaign.term == a->accepted_term;
    if (ours)
        decide(a);
    else
        instance_adopt(a, &a->accepted);
}

static void accept(struct consensus *a, uint64_t term, const struct view *view, const struct digest *digest)
{
    a->accepted_term = term;
    a->accepted_inherited = false;
    a->accepted_digest = *digest;
    view_copy(&a->accepted, view);
}

/* a->proposal in the ballot `term`, which is ours. */
static void propose(struct consensus *a, uint64_t term)
{
    if (term < a->promised) { /* an inherited vote was given to another candidate */
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

/* A view that voters had accepted goes first: it may be decided already. */
static void propose_as_elected(struct consensus *a)
{
    if (a->campaign.best_term == 0)
        change_build(a, a->campaign.term);
    propose(a, a->campaign.term);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t known_term(const struct consensus *a)
{
    return later(later(a->seen_term, a->promised), a->view.term);
}

bool term_near(const struct consensus *a, uint64_t term)
{
    return term <= known_term(a) + TERM_STEP;
}

static void call_for_votes(struct consensus *a)
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
        view_copy(&a->proposal, &a->accepted);
    if (have_quorum(a))
        propose_as_elected(a);
    else
        send_calls(a);
}

/* The leader proposes a change. */
static void change(struct consensus *a)
{
    a->change_ns = NEVER_NS;
    /* No other node may propose in this term, and we have not yet. */
    bool free = a->promised == a->view.term && a->accepted_term == 0;
    if (!free) {
        call_for_votes(a);
        return;
    }
    change_build(a, a->view.term);
    propose(a, a->view.term);
}

static uint64_t my_turn_ns(const struct consensus *a)
{
    uint64_t turn = a->leader_lost_ns + (uint64_t)place_in_line(a) * answer_ns(a) / 2;
    if (!member_gone(a, a->view.leader))
        turn += answer_ns(a); /* it may hear its members again */
    return later(turn, a->campaign.not_before_ns);
}

static void think_of_change(struct consensus *a)
{
    if (!change_wanted(a))
        a->change_ns = NEVER_NS;
    else if (a->change_ns == NEVER_NS)
        a->change_ns = later(a->now_ns + GATHER_NS, a->campaign.not_before_ns);
    if (a->now_ns >= a->change_ns)
        change(a);
}

static void think_of_leader(struct consensus *a)
{
    if (self_leads(a) || leader_serves(a) || !votes(a, a->me))
        a->leader_lost_ns = 0;
    else if (a->leader_lost_ns == 0)
        a->leader_lost_ns = a->now_ns;
}

void vote_think(struct consensus *a)
{
    think_of_leader(a);
    switch (a->campaign.phase) {
    case CAMPAIGN_NONE:
        if (a->request != 0 || !a->has_quorum)
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

uint64_t vote_deadline(const struct consensus *a)
{
    const struct campaign *c = &a->campaign;
    if (c->phase != CAMPAIGN_NONE)
        return c->end_ns < c->resend_ns ? c->end_ns : c->resend_ns;
    if (a->request != 0 || !a->has_quorum)
        return NEVER_NS;
    if (self_leads(a))
        return a->change_ns;
    return a->leader_lost_ns != 0 ? my_turn_ns(a) : NEVER_NS;
}

/* ---- as an acceptor ---- */

/* Notes a term; false: it is too far ahead to follow at once. */
static bool see_term(struct consensus *a, uint64_t term)
{
    bool near = term_near(a, term);
    a->seen_term = later(a->seen_term, near ? term : known_term(a) + TERM_STEP);
    return near;
}

/* Whether a question about the epoch after `epoch` is for us; if not, the sender learns where we stand. */
static bool concerns_us(struct consensus *a, struct voter *from, uint64_t instance, uint64_t epoch)
{
    if (instance == a->view.instance && epoch == a->view.epoch)
        return is_voter(a, from) && votes(a, a->me);
    if (instance == a->view.instance && epoch < a->view.epoch)
        send_view(a, from);
    else
        send_beat(a, from);
    return false;
}

static struct answer answer_of(const struct consensus *a, uint64_t term, bool yes)
{
    return (struct answer){.instance = a->view.instance,
                           .epoch = a->view.epoch,
                           .term = term,
                           .promised = a->promised,
                           .yes = yes};
}

void take_call(struct consensus *a, struct voter *from, const struct vote_request *call)
{
    if (!concerns_us(a, from, call->instance, call->epoch))
        return;
    bool near = see_term(a, call->term);
    bool again = call->term == a->promised && identity_equal(&a->voted_for, &from->info.id);
    bool content = from->index == a->view.leader || call->tries >= TRIES_MIN || !leader_serves(a);
    bool yes = again || (near && content && call->term > a->promised);
    if (yes && !again) {
        a->promised = call->term;
        a->voted_for = from->info.id;
        if (a->campaign.phase == CAMPAIGN_CALLING)
            campaign_failed(a);
        a->campaign.not_before_ns =
            later(a->campaign.not_before_ns, a->now_ns + answer_ns(a) + jitter(a, answer_ns(a) / 2));
    }
    struct answer answer = answer_of(a, call->term, yes);
    answer.accepted_term = yes ? a->accepted_term : 0;
    struct writer w = message_begin(a);
    answer_put(&w, &answer, &a->accepted);
    send_message(a, &from->info.id, MESSAGE_VOTE, &w);
}

/* An answer to our current question. */
static bool answers_us(struct consensus *a, const struct voter *from, const struct answer *answer,
                       enum campaign_phase phase)
{
    if (answer->instance != a->view.instance)
        return false;
    (void)see_term(a, answer->promised);
    return answer->epoch == a->view.epoch && is_voter(a, from) && a->campaign.phase == phase &&
           answer->term == a->campaign.term;
}

/* The acceptance reported in a->scratch is possible: before this term, and after our view was decided. */
static bool may_be_accepted(const struct consensus *a, const struct answer *answer, uint64_t before)
{
    return answer->accepted_term == 0 ||
           (answer->accepted_term < before && answer->accepted_term >= a->scratch.term &&
            a->scratch.term >= a->view.term);
}

void take_vote(struct consensus *a, struct voter *from, const struct answer *answer)
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
        view_copy(&a->proposal, &a->scratch);
    }
    if (have_quorum(a))
        propose_as_elected(a);
}

void send_accept(struct consensus *a, struct voter *p)
{
    if (a->accepted_term == 0 || a->accepted_inherited || p->index < 0)
        return;
    struct answer answer = answer_of(a, a->accepted_term, true);
    struct writer w = message_begin(a);
    answer.digest = a->accepted_digest;
    answer_put(&w, &answer, NULL);
    send_message(a, &p->info.id, MESSAGE_ACCEPT, &w);
}

/* It follows our view; a new view names its proposer as leader. */
static bool may_be_proposed(const struct consensus *a, const struct voter *from, uint64_t term)
{
    const struct view *next = &a->scratch;
    bool fresh = next->term == term;
    return next->term >= a->view.term &&
           (!fresh || identity_equal(&next->members[next->leader].id, &from->info.id));
}

/* The proposed view is in a->scratch. We accept one view per term, from the candidate that has our vote. */
void take_propose(struct consensus *a, struct voter *from, uint64_t term)
{
    if (!concerns_us(a, from, a->scratch.instance, a->scratch.epoch - 1) || !may_be_proposed(a, from, term))
        return;
    (void)see_term(a, term);
    struct digest digest = view_digest(a, &a->scratch);
    from->accept = (struct ballot){a->scratch.instance, a->scratch.epoch, term, digest};
    a->stir = true;
    bool yes = term == a->promised && identity_equal(&a->voted_for, &from->info.id) &&
               (a->accepted_term != term || digest_equal(&a->accepted_digest, &digest));
    if (!yes) {
        struct answer answer = answer_of(a, term, false);
        struct writer w = message_begin(a);
        answer.digest = digest;
        answer_put(&w, &answer, NULL);
        send_message(a, &from->info.id, MESSAGE_ACCEPT, &w);
        return;
    }
    accept(a, term, &a->scratch, &digest);
    for (int i = 0; i < a->view.size; i++)
        if (a->member[i])
            send_accept(a, a->member[i]);
}

void take_accept(struct consensus *a, struct voter *from, const struct answer *answer)
{
    bool here = answer->instance == a->view.instance && answer->epoch == a->view.epoch;
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

/* A member that leaves gives us its vote with all that it has promised and accepted: from now on this node is
 * that acceptor, too. The member sends nothing afterwards, so no other node can be. */
static void inherit(struct consensus *a, const struct voter *from, const struct answer *answer)
{
    if (proxy_held(a, &from->info.id) || a->proxy_count == PROXY_MAX || !see_term(a, answer->promised) ||
        !may_be_accepted(a, answer, answer->promised + 1))
        return;
    a->proxies[a->proxy_count++] = from->info.id;
    if (answer->promised > a->promised) {
        a->promised = answer->promised;
        a->voted_for = from->info.id;
    }
    if (answer->accepted_term > a->accepted_term) {
        struct digest digest = view_digest(a, &a->scratch);
        accept(a, answer->accepted_term, &a->scratch, &digest);
        a->accepted_inherited = true; /* our own promise in that term may differ */
    }
}

void take_leave(struct consensus *a, struct voter *from, const struct answer *answer)
{
    bool here = answer->instance == a->view.instance && answer->epoch == a->view.epoch;
    from->left = true;
    from->heir = here && answer->term <= VIEW_MEMBERS_MAX ? (int)answer->term - 1 : -1;
    a->stir = true;
    if (answer->yes && here && is_voter(a, from) && votes(a, a->me))
        inherit(a, from, answer);
}
