/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what a member says of itself with what its connection has proven and with what others have. */
#include "bootstrap/register_trust.h"

#include <string.h>

#include "core/bytes.h"

int register_trust(const struct rendezvous_setup *s, const struct identity *peer,
                   const struct meeting_register *in, struct error *error)
{
    unsigned process = in->member.process;
    const char *host = in->member.name;
    bool plain = bytes_zero(in->member.id.node.bytes, NODE_ID_LEN);

    if (plain != !s->space)
        return error_because(
            error, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_MISMATCH, in->rank,
            "rendezvous: process %u on %s %s, the others %s: start all members with plain, or "
            "(better) none",
            process, host, plain ? "is plain" : "encrypts", plain ? "encrypt" : "are plain");
    if (s->credentials && !(peer && identity_equal(peer, &in->member.id)))
        return error_set(error, HEARTH_PROTOCOL, in->rank,
                         "rendezvous: process %u on %s: it speaks for another member than the one that its "
                         "handshake has proven",
                         process, host);
    if (s->space && !bytes_zero(in->space, NAMESPACE_LEN) && memcmp(in->space, s->space, NAMESPACE_LEN) != 0)
        return error_because(
            error, HEARTH_REASON_SECRET_DIFFERS, HEARTH_MISMATCH, in->rank,
            "rendezvous: process %u on %s has the secret of another cluster: give all members the "
            "same (hearth join TOKEN, HEARTH_SECRET_FILE), or none of them (then one is made for "
            "this job)",
            process, host);
    return HEARTH_OK;
}
