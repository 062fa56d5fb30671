/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: is this machine fit for a cluster, and what is to be mended. Findings are collected, judged,
 * printed. */
#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/node_query.h"
#include "cli/commands.h"
#include "cli/shared/listing.h"

#define CHECK_MAX       96
#define CHECK_WIDTH_MAX 40

static const char *const verdict_names[] = {"pass", "warn", "fail"};

/* What others sent has no control characters then. */
static json_t *plain_json(const char *text)
{
    char plain[FINDING_TEXT_MAX];
    return json_text(plain_text(text, plain, sizeof plain));
}

void doctor_note(struct doctor *doctor, enum verdict verdict, const char *check, const char *format, ...)
{
    char name[CHECK_MAX], text[FINDING_TEXT_MAX];
    va_list args;
    if (json_array_size(doctor->findings) >= FINDINGS_MAX)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *fix = strstr(text, FIX);
    if (fix)
        *fix = 0;
    snprintf(name, sizeof name, "%s%s%s", check, doctor->about ? " " : "",
             doctor->about ? doctor->about : "");
    doctor->counts[verdict]++;
    json_array_append_new(doctor->findings, json_pack("{so ss so so}", "check", plain_json(name), "verdict",
                                                      verdict_names[verdict], "text", plain_json(text), "fix",
                                                      plain_json(fix ? fix + strlen(FIX) : "")));
}

enum verdict doctor_worst(const struct doctor *doctor)
{
    return doctor->counts[FAIL] ? FAIL : doctor->counts[WARN] ? WARN : PASS;
}

void doctor_print(const struct doctor *doctor, FILE *file)
{
    static const enum paint paints[] = {PAINT_GOOD, PAINT_BOLD, PAINT_BAD};
    const int *counts = doctor->counts;
    size_t width = 0, i;
    json_t *finding;
    json_array_foreach(doctor->findings, i, finding)
    {
        size_t len = strlen(json_text_of(finding, "check"));
        width = len > width ? len : width;
    }
    width = width < CHECK_WIDTH_MAX ? width : CHECK_WIDTH_MAX;
    json_array_foreach(doctor->findings, i, finding)
    {
        const char *verdict = json_text_of(finding, "verdict"), *fix = json_text_of(finding, "fix");
        enum verdict of = verdict[0] == 'p' ? PASS : verdict[0] == 'w' ? WARN : FAIL;
        fprintf(file, "%s%s%s  %-*s  %s\n", paint(file, paints[of]), verdict, paint(file, PAINT_NONE),
                (int)width, json_text_of(finding, "check"), json_text_of(finding, "text"));
        if (fix[0])
            fprintf(file, "      %*s  fix: %s\n", (int)width, "", fix);
    }
    fprintf(file, "\n%d passed, %d warning%s, %d failed\n", counts[PASS], counts[WARN],
            counts[WARN] == 1 ? "" : "s", counts[FAIL]);
}

static bool print_json(const struct doctor *d, int argc, char **argv)
{
    json_t *doc = doc_open(argc, argv);
    if (!doc)
        return false;
    row_text(doc, "worst", verdict_names[doctor_worst(d)]);
    json_object_set(doc, "results", d->findings);
    return doc_close(doc);
}

static void check_all(struct doctor *d)
{
    hearth_config_init(&d->config);
    if (hearth_config_env(&d->config)) {
        doctor_note(d, FAIL, "environment",
                    "%s" FIX "correct the variable, or unset it; until then the defaults are checked",
                    hearth_error_text());
        hearth_config_init(&d->config);
    }
    int code = ask_node(d->usage, &d->status);
    if (code != ARGS_GO && code != EXIT_NO_NODE)
        doctor_note(d, FAIL, "node",
                    "a node runs here and does not answer as it should" FIX
                    "stop it and start it again: hearth up");
    doctor_check_machine(d);
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
        "ports, firewall, limits and, if a node runs here, the paths to its peers and back. Each line is "
        "pass, warn or fail, with the fix; the exit code is 0, 1 or 2, by the worst. Changes nothing.",
        "hearth doctor", USAGE_ARGS(args),
        .exit_codes = "0 all passed, 1 there is a warning, 2 something failed, or wrong usage."};
    struct doctor doctor = {.usage = &usage};
    int code = args_parse(&usage, argc, argv);
    if (code != ARGS_GO)
        return code;
    doctor.findings = json_array();
    check_all(&doctor);
    code = (int)doctor_worst(&doctor);
    if (json ? !print_json(&doctor, argc, argv) : (doctor_print(&doctor, stdout), print_done() != EXIT_GOOD))
        code = FAIL;
    json_decref(doctor.status);
    json_decref(doctor.findings);
    return code;
}
