/* SPDX-License-Identifier: Apache-2.0 */
/* In place of QUIC, in a library that was built without it (HEARTH_QUIC=OFF). */
#include "transport/quic.h"

bool quic_built(void)
{
    return false;
}

int quic_open(const struct quic_setup *setup, struct quic **out, struct error *error)
{
    (void)setup, (void)out;
    return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE, "this library was built without quic");
}

void quic_close(struct quic *quic)
{
    (void)quic;
}

int quic_join(struct quic *quic, struct quic_peer *peers, int count, uint64_t deadline_ns,
              const struct stop *stop, struct error *error)
{
    (void)quic, (void)peers, (void)count, (void)deadline_ns, (void)stop;
    return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE, "this library was built without quic");
}
