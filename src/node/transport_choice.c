/* SPDX-License-Identifier: Apache-2.0 */
/* A path counts as unchanged while the peer has the same address and a similar round trip. Neither shows
 * loss, so after a while it is measured again. */
#include "node/transport_choice.h"

#include <string.h>

#include "os/clock.h"

#define KEPT_NS (1800 * NS_PER_S)

int transport_choices_init(struct transport_choices *choices)
{
    memset(choices->kept, 0, sizeof choices->kept);
    return mutex_init(&choices->lock);
}

void transport_choices_fini(struct transport_choices *choices)
{
    mutex_fini(&choices->lock);
}

/* The entry of the peer, or NULL. With the lock. */
static struct kept_choice *kept_of(struct transport_choices *choices, const struct node_id *node)
{
    for (int i = 0; i < TRANSPORT_CHOICES_MAX; i++)
        if (choices->kept[i].at_ns != 0 && node_id_equal(&choices->kept[i].path.node, node))
            return &choices->kept[i];
    return NULL;
}

static struct kept_choice *oldest(struct transport_choices *choices)
{
    struct kept_choice *first = &choices->kept[0];
    for (int i = 1; i < TRANSPORT_CHOICES_MAX; i++)
        if (choices->kept[i].at_ns < first->at_ns)
            first = &choices->kept[i];
    return first;
}

/* Within a factor of two: the first packets of a group may queue behind those of others. */
static bool looks_the_same(const struct transport_path *then, const struct transport_path *now)
{
    return sock_addr_same_host(&then->addr, &now->addr) && now->round_trip_ns <= 2 * then->round_trip_ns &&
           then->round_trip_ns <= 2 * now->round_trip_ns;
}

bool transport_choice_find(struct transport_choices *choices, const struct transport_path *path,
                           uint64_t now_ns, struct transport_choice *choice)
{
    mutex_lock(&choices->lock);
    const struct kept_choice *kept = kept_of(choices, &path->node);
    bool found = kept && now_ns - kept->at_ns < KEPT_NS && looks_the_same(&kept->path, path);
    if (found)
        *choice = kept->choice;
    mutex_unlock(&choices->lock);
    return found;
}

void transport_choice_keep(struct transport_choices *choices, const struct transport_path *path,
                           uint64_t now_ns, const struct transport_choice *choice)
{
    mutex_lock(&choices->lock);
    struct kept_choice *kept = kept_of(choices, &path->node);
    if (!kept)
        kept = oldest(choices);
    *kept = (struct kept_choice){.path = *path, .choice = *choice, .at_ns = now_ns};
    mutex_unlock(&choices->lock);
}

void transport_choice_forget(struct transport_choices *choices, const struct node_id *node)
{
    mutex_lock(&choices->lock);
    struct kept_choice *kept = kept_of(choices, node);
    if (kept)
        kept->at_ns = 0;
    mutex_unlock(&choices->lock);
}
