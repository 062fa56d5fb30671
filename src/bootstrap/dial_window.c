/* SPDX-License-Identifier: Apache-2.0 */
/* One more for each that goes well; half as many when one does not, once for all that were under way then. */
#include "bootstrap/dial_window.h"

void dial_window_init(struct dial_window *w, int max)
{
    *w = (struct dial_window){.size = max < DIAL_WINDOW_FIRST ? max : DIAL_WINDOW_FIRST, .max = max};
}

void dial_window_cut(struct dial_window *w, uint64_t began_ns, uint64_t now_ns)
{
    if (began_ns < w->shrunk_ns)
        return;
    w->size = w->size / 2 > DIAL_WINDOW_MIN ? w->size / 2 : DIAL_WINDOW_MIN;
    w->careful = true;
    w->good = 0;
    w->shrunk_ns = now_ns;
}

void dial_window_kept(struct dial_window *w, uint64_t began_ns, uint64_t now_ns, uint64_t round_trip_ns)
{
    if (now_ns - began_ns > DIAL_SLOW_NS + DIAL_ROUND_TRIPS * round_trip_ns) {
        dial_window_cut(w, began_ns, now_ns);
        return;
    }
    if (w->careful && ++w->good < w->size)
        return;
    w->good = 0;
    w->size += w->size < w->max;
}
