/* SPDX-License-Identifier: Apache-2.0 */
/* What members and the rendezvous say to each other before there are links. docs/wire.md is the law.
 *
 *     member                     rendezvous
 *     REGISTER  ------------->
 *               <-------------   WELCOME    wait for the others
 *               <-------------   ROSTER     all are here (again, if one left before GO)
 *     READY     ------------->
 *               <-------------   GO         all have the roster
 *               <-------------   REFUSE     at any time instead; then it closes
 */
#pragma once

#include "core/error.h"
#include "wire/message.h"
#include "wire/peer_codec.h"

#define MEETING_SMALL_MAX   4096u        /* payload bytes of every kind but MEETING_ROSTER */
#define MEETING_ROSTER_MAX  (512u << 10) /* payload bytes of MEETING_ROSTER */
#define MEETING_MEMBERS_MAX 1024u
#define MEETING_JOB_MAX     128u /* with the final 0, as both texts */
#define MEETING_TEXT_MAX    2048u
#define MEETING_PLACE_LEN   16u /* what a ROSTER begins with: cluster, rank, size */
#define MEETING_SPACE_LEN   16u /* namespace */
#define MEETING_SECRET_LEN  32u
#define MEETING_WELCOME_MAX (8u + MEETING_SECRET_LEN)

enum meeting_kind {
    MEETING_REGISTER = 64,
    MEETING_WELCOME = 65,
    MEETING_ROSTER = 66,
    MEETING_READY = 67,
    MEETING_GO = 68,
    MEETING_REFUSE = 69 /* payload is a struct error (wire/record.h) */
};
extern const struct message_kinds meeting_to_rendezvous, meeting_to_member;

struct meeting_register {
    uint16_t version_min, version_max; /* of the frames on links */
    int32_t rank;                      /* wanted; RANK_NONE: any */
    uint32_t size;                     /* members expected */
    uint32_t patience_ms;              /* an answer after this is too late for the sender */
    uint64_t settings;
    uint8_t space[MEETING_SPACE_LEN]; /* namespace of its secret; 0: it has none */
    char job[MEETING_JOB_MAX];
    char settings_text[MEETING_TEXT_MAX];
    struct peer_info member;
};

struct meeting_welcome {
    uint32_t present, size; /* registered, the receiver included; expected */
    bool has_secret;
    uint8_t secret[MEETING_SECRET_LEN];
};

struct meeting_place {
    uint64_t cluster;    /* never 0; READY and GO carry it too */
    uint32_t rank, size; /* the receiver's; 1..MEETING_MEMBERS_MAX */
};

/* Payloads. The encoders give the length, 0 if the target is too small. The decoders check every field:
 * HEARTH_PROTOCOL for lengths, numbers and characters that may not be. */
size_t meeting_register_encode(const struct meeting_register *r, void *target, size_t size);
int MUST_CHECK meeting_register_decode(struct meeting_register *r, const void *source, size_t len);
size_t meeting_welcome_encode(const struct meeting_welcome *w, void *target, size_t size);
/* Scratch on failure. */
int MUST_CHECK meeting_welcome_decode(struct meeting_welcome *w, const void *source, size_t len);
/* A ROSTER is a place and then `size` peers (wire/peer_codec.h), in two pieces because the second is the same
 * for all. */
size_t meeting_place_encode(const struct meeting_place *p, void *target, size_t size);
/* `members` has room for max and is scratch on failure; a roster with more is HEARTH_PROTOCOL. */
int MUST_CHECK meeting_roster_decode(struct meeting_place *p, struct peer_info *members, size_t max,
                                     const void *source, size_t len);
size_t meeting_cluster_encode(uint64_t cluster, void *target, size_t size); /* READY, GO */
int MUST_CHECK meeting_cluster_decode(uint64_t *cluster, const void *source, size_t len);
