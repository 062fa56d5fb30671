/* SPDX-License-Identifier: Apache-2.0 */
/* Each handshake costs a slice of time, which is owed; debts may grow to those of a whole burst. */
#include "security/admission.h"

#include "core/types.h"

#define EACH_NS       (NS_PER_S / ADMISSION_PER_S)
#define EACH_SHARE_NS (NS_PER_S / ADMISSION_SHARE_PER_S)

void admission_init(struct admission *a, int more)
{
    *a = (struct admission){.more = (uint64_t)more};
}

/* The debt with one more of them. */
static uint64_t owed(uint64_t due_ns, uint64_t each_ns, uint64_t now_ns)
{
    return (due_ns > now_ns ? due_ns - now_ns : 0) + each_ns;
}

/* Its place, or that of the source that owes least, which is forgotten. */
static struct admission_source *source_find(struct admission *a, uint64_t source)
{
    struct admission_source *least = &a->sources[0];

    for (int i = 0; i < ADMISSION_SOURCES; i++) {
        if (a->sources[i].source == source)
            return &a->sources[i];
        if (a->sources[i].due_ns < least->due_ns)
            least = &a->sources[i];
    }
    *least = (struct admission_source){.source = source};
    return least;
}

bool admission_take(struct admission *a, uint64_t source, bool weak, uint64_t now_ns)
{
    struct admission_source *s = source_find(a, source);
    uint64_t all_ns = owed(a->due_ns, EACH_NS, now_ns), own_ns = owed(s->due_ns, EACH_SHARE_NS, now_ns);
    bool in_share = own_ns <= (ADMISSION_SHARE_BURST + a->more) * EACH_SHARE_NS;
    bool in_burst = all_ns <= (ADMISSION_BURST + a->more) * EACH_NS;
    bool in_reserve = all_ns <= (ADMISSION_BURST + ADMISSION_RESERVE + a->more) * EACH_NS;

    if (!(weak ? in_burst && in_share : in_burst || (in_reserve && in_share)))
        return false;
    a->due_ns = now_ns + all_ns;
    if (in_share)
        s->due_ns = now_ns + own_ns;
    return true;
}
