/* SPDX-License-Identifier: Apache-2.0 */
/* What the listed rules of a firewall mean for Hearth: only a look, nothing is changed. Pure. */
#pragma once

#include <stdbool.h>

struct firewall_view {
    bool closed;    /* what no rule lets in stays out */
    bool opened;    /* but there is a rule that lets Hearth's port in */
    char place[96]; /* of nft: family, table and chain, for a further rule */
};

/* The text of `nft list ruleset`. */
struct firewall_view firewall_read_nft(const char *text);
/* The text of `iptables -S INPUT`. */
struct firewall_view firewall_read_iptables(const char *text);
