/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of hearth doctor: collected, judged, printed. */
#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <string.h>

#include "cli/shared/table.h"
#include "cli/shared/text.h"

#define CHECK_WIDTH_MAX 40

const char *verdict_name(enum verdict verdict)
{
    static const char *const names[] = {"pass", "warn", "fail"};
    return names[verdict];
}

const char *check_about(const char *check, const char *whom, char target[static FINDING_CHECK_MAX])
{
    snprintf(target, FINDING_CHECK_MAX, "%s %s", check, whom);
    return target;
}

static void write_plain(char target[static FINDING_TEXT_MAX], const char *format, va_list args)
{
    char text[FINDING_TEXT_MAX];
    vsnprintf(text, sizeof text, format, args);
    plain_text(text, target, FINDING_TEXT_MAX);
}

void doctor_note(struct doctor *doctor, enum verdict verdict, const char *check, const char *format, ...)
{
    va_list args;
    if (doctor->count >= FINDINGS_MAX)
        return;
    struct finding *finding = &doctor->findings[doctor->count++];
    *finding = (struct finding){.verdict = verdict};
    plain_text(check, finding->check, sizeof finding->check);
    va_start(args, format);
    write_plain(finding->text, format, args);
    va_end(args);
}

void doctor_fix(struct doctor *doctor, const char *format, ...)
{
    va_list args;
    if (doctor->count == 0)
        return;
    va_start(args, format);
    write_plain(doctor->findings[doctor->count - 1].fix, format, args);
    va_end(args);
}

enum verdict doctor_worst(const struct doctor *doctor)
{
    enum verdict worst = VERDICT_PASS;
    for (int i = 0; i < doctor->count; i++)
        worst = doctor->findings[i].verdict > worst ? doctor->findings[i].verdict : worst;
    return worst;
}

static int count_of(const struct doctor *doctor, enum verdict verdict)
{
    int count = 0;
    for (int i = 0; i < doctor->count; i++)
        count += doctor->findings[i].verdict == verdict;
    return count;
}

static int check_width(const struct doctor *doctor)
{
    size_t width = 0;
    for (int i = 0; i < doctor->count; i++) {
        size_t len = strlen(doctor->findings[i].check);
        width = len > width ? len : width;
    }
    return (int)(width < CHECK_WIDTH_MAX ? width : CHECK_WIDTH_MAX);
}

void doctor_print(const struct doctor *doctor, FILE *file)
{
    static const enum paint paints[] = {PAINT_GOOD, PAINT_BOLD, PAINT_BAD};
    int width = check_width(doctor);
    for (int i = 0; i < doctor->count; i++) {
        const struct finding *f = &doctor->findings[i];
        fprintf(file, "%s%s%s  %-*s  %s\n", paint(file, paints[f->verdict]), verdict_name(f->verdict),
                paint(file, PAINT_NONE), width, f->check, f->text);
        if (f->fix[0])
            fprintf(file, "      %*s  fix: %s\n", width, "", f->fix);
    }
    int warned = count_of(doctor, VERDICT_WARN), failed = count_of(doctor, VERDICT_FAIL);
    fprintf(file, "\n%d passed, %d warning%s, %d failed\n", count_of(doctor, VERDICT_PASS), warned,
            warned == 1 ? "" : "s", failed);
}
