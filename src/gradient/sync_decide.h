/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a step when its group is followed by another one: a pure function of what the members of
 * the next group say. All of them compute it from the same records, so all find the same.
 *
 * A step in a formed group is a two-phase commit. An attempt is (steps, id of its group). A member that has
 * the results of all buckets is prepared; the vote tells it that all members are, and that commits the step.
 * If it does not hear the vote it stays prepared, ends the group, and the next group decides:
 *
 *   1  Members that have begun a step since they were new or fell behind have joined; only they count, unless
 *      nobody has. The model is where the most steps are (S, with lineage L; of two lineages, which only a
 *      cluster that was split has, the one of the later round).
 *   2  A member at S - 1 that is prepared, and whose attempt leads to L, commits: others have.
 *   3  Of those at (S, L) the ones of the latest round decide. All prepared in one attempt: it commits, for
 *      all that are prepared in it. Otherwise the step is aborted: who is prepared takes it back.
 *   4  All others are behind: new, more than a step away, of another lineage, or not in the attempt.
 *
 * Rounds are to a step what ballots are to Paxos (node/reconcile.c has the exchanges). First members agree on
 * the next round, one more than any of them has promised, and promise it; then they say where they stand, and
 * each decides, in that round; then they confirm it, and only after that anybody makes use of a commit. Let a
 * member have committed attempt a of step S in round r, by a vote or by a decision. Then all joined members
 * of that group were prepared in a, and none had promised a later round. Who has not committed it stays
 * prepared until a later decision. Let one of them take part in that: it is of a later round; those at (S,
 * L) of the latest round in it are prepared in a, by induction; so it commits a again. An abort is as safe:
 * somebody of the latest round was not prepared, so nobody has committed, nor can: who has not heard of the
 * abort has an earlier round than those that have. If nobody of the group that committed is in the next one,
 * or the only one was started again and has forgotten its promise, those that are left go on without that
 * step; who comes back with it counts by rule 1.
 *
 * tests/unit/gradient/test_sync_decide.c runs through what can be heard and lost by up to four members. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SYNC_PRESENT = 1, SYNC_JOINED = 2, SYNC_PREPARED = 4 }; /* sync_record.flags */

/* What a member says of its sync. Travels as it is: docs/payloads.md. All zero: it has none. */
struct sync_record {
    uint64_t flags;
    uint64_t steps, lineage; /* that it has committed, and a hash of which attempts these were */
    uint64_t attempt;        /* prepared: id of the group in which it is */
    uint64_t round;          /* in which it decided last */
};

struct sync_decision {
    uint64_t steps, lineage; /* where the model is */
    uint64_t attempt;        /* commit: of step `steps`, that is committed */
    bool commit;
};

enum sync_verdict {
    SYNC_CONTINUE,     /* at (steps, lineage); what was prepared is aborted */
    SYNC_COMMIT,       /* what is prepared is committed */
    SYNC_COMMIT_TAKEN, /* likewise, and a member of the group has made use of it */
    SYNC_BEHIND
};

uint64_t sync_lineage(uint64_t lineage, uint64_t steps, uint64_t attempt); /* after that attempt */
struct sync_decision sync_decide(const struct sync_record *records, int size);
enum sync_verdict sync_verdict(const struct sync_decision *decision, const struct sync_record *record);
