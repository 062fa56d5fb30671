/* SPDX-License-Identifier: Apache-2.0 */
/* A member that sends whatever it likes: every message of the consensus, well-formed, with fields that are
 * right, nearly right, extreme or drawn. It is what it says it is by its connection only. */
#pragma once

#include "sim_cluster.h"

enum hostility {
    HOSTILE_NONE,
    /* All but the lies that docs/membership.md names, which no majority can withstand: in the election at
     * hand it does not vote, accept, propose or hand over its vote beside what the rules let it, and it tells
     * nobody for whom its word alone must do (who knows nobody else there) a view that is none. */
    HOSTILE_BUT_TRUE_VOTES,
    HOSTILE_AT_WILL /* those, too */
};

/* One message of the hostile node to one of the others. */
void hostile_act(struct sim_cluster *sim, enum hostility how);
