/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: is this machine fit for a cluster, and what is to be mended. */
#include <stdlib.h>

#include "cli/cluster/node_query.h"
#include "cli/commands.h"
#include "cli/doctor/doctor.h"
#include "cli/shared/args.h"
#include "cli/shared/json.h"

static bool print_json(const struct doctor *d, int argc, char **argv)
{
    json_t *doc = doc_open(argc, argv);
    if (!doc)
        return false;
    row_text(doc, "worst", verdict_name(doctor_worst(d)));
    for (int i = 0; i < d->count; i++) {
        const struct finding *finding = &d->findings[i];
        json_t *row = doc_row(doc);
        row_text(row, "check", finding->check);
        row_text(row, "verdict", verdict_name(finding->verdict));
        row_text(row, "text", finding->text);
        row_text(row, "fix", finding->fix);
    }
    return doc_close(doc);
}

static void check_config(struct doctor *d)
{
    hearth_config_init(&d->config);
    if (hearth_config_env(&d->config) == HEARTH_OK)
        return;
    doctor_note(d, VERDICT_FAIL, "environment", "%s", hearth_error_text());
    doctor_fix(d, "correct the variable, or unset it; until then the defaults are checked");
    hearth_config_init(&d->config);
}

static void check_all(struct doctor *d)
{
    check_config(d);
    int code = ask_node(d->usage, &d->status);
    if (code != ARGS_GO && code != EXIT_NO_NODE) {
        doctor_note(d, VERDICT_FAIL, "node", "a node runs here and does not answer as it should");
        doctor_fix(d, "end it and start it anew: hearth up");
    }
    doctor_check_files(d);
    doctor_check_network(d);
    doctor_check_limits(d);
    doctor_check_peers(d);
}

int cmd_doctor(int argc, char **argv)
{
    bool json = false;
    const struct arg args[] = {
        {"json", ARG_FLAG, &json, .about = "print one JSON object"},
    };
    const struct usage usage = {
        "doctor",
        "Checks what a cluster needs of this machine: versions, files, clock, interfaces, multicast, mDNS, "
        "ports, firewall, limits and, if a node runs here, the ways to its peers and back. Each line is "
        "pass, "
        "warn or fail, with the fix; the exit code is 0, 1 or 2, by the worst. Changes nothing.",
        "hearth doctor", USAGE_ARGS(args),
        .exit_codes = "0 all passed, 1 there is a warning, 2 something failed, or wrong usage."};
    int code = args_parse(&usage, argc, argv);
    if (code != ARGS_GO)
        return code;
    struct doctor *doctor = calloc(1, sizeof *doctor);
    if (!doctor) {
        fprintf(stderr, "hearth doctor: no memory\n");
        return EXIT_USAGE;
    }
    doctor->usage = &usage;
    check_all(doctor);
    code = (int)doctor_worst(doctor);
    if (json ? !print_json(doctor, argc, argv) : (doctor_print(doctor, stdout), print_done() != EXIT_GOOD))
        code = VERDICT_FAIL;
    json_decref(doctor->status);
    free(doctor);
    return code;
}
