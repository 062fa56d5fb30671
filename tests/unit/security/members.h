/* SPDX-License-Identifier: Apache-2.0 */
/* Two members of one cluster, and an end of a channel for each: what tests of channels begin with. */
#pragma once

#include "folder.h"
#include "rogue.h"

#define CLUSTER 1 /* the byte that their secret consists of */

extern struct credentials *ann, *bob;
extern struct credentials *third; /* another node, of those tests that make one */
extern struct end dialler, listener;
extern char knock[128]; /* right for their secret: heard on the network, and repeated by rogues */

int members_set_up(void **state); /* with a folder */
/* Whatever was tried before: members still meet, and nothing is left behind. */
int members_tear_down(void **state);
void members_part(void); /* closes both ends */
