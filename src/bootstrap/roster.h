/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a cluster, agreed by all of them before the first link is made. */
#pragma once

#include "core/error.h"
#include "core/heap.h"
#include "core/log.h"
#include "core/peer_info.h"
#include "os/sock.h"
#include "security/credentials.h"

#define ROSTER_MEMBERS_MAX 1024
#define ROSTER_ADDRS_MAX   4 /* of a member that are dialled */

struct roster {
    uint64_t cluster; /* drawn by the rendezvous, never 0: the id of the world group, and in every greeting */
    int rank, size;   /* ours; all */
    struct peer_info *members; /* [size], heap */
    bool has_secret;           /* it was handed out: the cluster's secret */
    uint8_t secret[SECRET_LEN];
};
void roster_fini(struct roster *roster);                                  /* wipes the secret */
bool members_share(const struct peer_info *a, const struct peer_info *b); /* memory */
/* HEARTH_LIMIT: this process may not open as many files as its connections need: `channels` to each member,
 * one where memory is shared. `members` NULL: one to each, at least. */
int MUST_CHECK roster_files_check(const struct roster *roster, int channels, struct error *error);

/* What a member brings to the rendezvous. */
struct roster_setup {
    struct heap *heap;
    struct log log;
    const char *rendezvous;   /* "host:port" or "unix:..."; the first to come, or rank 0, opens it */
    const char *const *peers; /* static list [size], or NULL: then peers[0] is the rendezvous, ranks are
                                 given, and where peers[i] names other addresses than the member found for
                                 itself, the list wins */
    const char *job;          /* members of different jobs are refused */
    int rank;                 /* -1: as it comes; with `peers`: own place */
    int size;
    uint64_t settings;         /* hash of everything that must be agreed; texts name what differs */
    const char *settings_text; /* the same as text: "chunk_bytes=262144 window_bytes=..." */
    struct peer_info self;
    /* TCP: every connection begins with a handshake. Unix sockets have none: both ends check that the other
     * is of the same user, and the server hands out its secret: that of its credentials, or else its offer.
     * Neither: plain. */
    const struct credentials *credentials; /* NULL: plain, or the secret is not known yet */
    const uint8_t *offer;                  /* [SECRET_LEN] or NULL */
    int channels;                          /* connections to each member that does not share our memory */
    int listener; /* static list: the listening descriptor (rank 0 serves on it), else -1 */
    uint64_t deadline_ns;
    uint64_t connect_timeout_ns;
    uint32_t connect_retries; /* with backoff and jitter; a rendezvous without a listener yet is
                                 tried until the deadline */
};

/* Blocks until all members have the same roster, or fails with a text that names what is wrong and with whom:
 * unreachable or silent rendezvous, wrong protocol there, duplicate rank, missing ranks at the deadline
 * (all of them listed), different size, job, version or settings, another secret, plain where others are not,
 * a member that may not open files enough.
 * A failure at one member is told to all. The rendezvous is not needed any more when this returns. */
int MUST_CHECK roster_agree(const struct roster_setup *setup, struct roster *out, struct error *error);
