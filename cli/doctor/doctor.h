/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: checks of this machine, each with a verdict and, where something is wrong, the fix. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include <hearth.h>

#include "cli/shared/args.h"
#include "os/host.h"

enum verdict { PASS, WARN, FAIL }; /* also the exit codes, by the worst */

#define FIX              "\nfix: " /* in a format of doctor_note, before what to do */
#define FINDING_TEXT_MAX 800
#define FINDINGS_MAX     512 /* further ones are not kept: 64 addresses have four each */

struct doctor {
    const struct usage *usage;
    const char *about; /* what a check is about, behind its name: "multicast eth0"; NULL: the machine */
    json_t *findings;  /* {"check", "verdict", "text", "fix"}: as printed by --json */
    int counts[FAIL + 1];
    struct hearth_config config; /* from the environment */
    json_t *status;              /* of the node that runs here; NULL: none does */
    struct interface interfaces[INTERFACES_MAX];
    int interface_count;
};

/* A finding: its text, and the fix behind FIX if there is one. */
void doctor_note(struct doctor *doctor, enum verdict verdict, const char *check, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
double number_in(const char *path); /* -1: there is no such file, as on other systems */
enum verdict doctor_worst(const struct doctor *doctor);
void doctor_print(const struct doctor *doctor, FILE *file);

/* The checks, by what they look at; all of them end within seconds. */
void doctor_check_machine(struct doctor *doctor); /* versions, folder, key, secret, trust list, clock */
void doctor_check_network(struct doctor *doctor); /* interfaces, multicast, mDNS, ports, own addresses */
void doctor_check_limits(struct doctor *doctor);  /* firewall, buffers, limits, memory, processor */
void doctor_check_peers(struct doctor *doctor);   /* the other members, if a node runs here */

/* What the listed rules of a firewall mean for Hearth. Pure. */
struct firewall_view {
    bool closed;    /* what no rule lets in stays out */
    bool opened;    /* but there is a rule that lets Hearth's port in */
    char place[96]; /* of nft: family, table and chain, for a further rule */
};
struct firewall_view firewall_read_nft(const char *text);      /* `nft list ruleset` */
struct firewall_view firewall_read_iptables(const char *text); /* `iptables -S INPUT` */
