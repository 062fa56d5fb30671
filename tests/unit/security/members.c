/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes them. */
#include "members.h"

struct credentials *ann, *bob, *third;
struct end dialler, listener;
char knock[128];

int members_set_up(void **state)
{
    if (folder_make(state))
        return -1;
    heap_init(&ends_heap, 0);
    ann = ends_node(&(struct node_options){.secret = CLUSTER, .instance = 0xa});
    bob = ends_node(&(struct node_options){.secret = CLUSTER, .instance = 0xb});
    rogue_knock(CLUSTER, knock);
    ends_signatures = 0;
    return 0;
}

void members_part(void)
{
    end_close(&dialler);
    end_close(&listener);
}

int members_tear_down(void **state)
{
    int removed = folder_remove(state);

    members_part();
    ends_join(&dialler, &listener, ann, bob);
    ends_exchange(&dialler, &listener, 64);
    members_part();
    rogues_close();
    credentials_close(ann);
    credentials_close(bob);
    credentials_close(third);
    third = NULL;
    return ends_heap.blocks == 0 ? removed : -1;
}
