/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a subcommand by its name, shows them all, and helps who has mistyped one. */
#include "cli/shared/subcommand.h"

#include <stdio.h>
#include <string.h>

#include "cli/shared/args.h"
#include "cli/shared/text.h"

#define COUNT_MAX 8

static int print_overview(const struct subcommand_list *s, FILE *file)
{
    const char *bold = paint(file, PAINT_BOLD), *none = paint(file, PAINT_NONE);
    fprintf(file, "%susage:%s hearth %s WHAT [options]\n\n%s\n\n", bold, none, s->command, s->about);
    for (size_t i = 0; i < s->count; i++)
        fprintf(file, "  %s%-7s%s %s\n", bold, s->list[i].name, none, s->list[i].brief);
    fprintf(file, "\n%sexample:%s\n  %s\n\nTry: hearth %s %s --help\n", bold, none, s->example, s->command,
            s->try_name);
    return file == stdout ? EXIT_GOOD : EXIT_USAGE;
}

static int refuse(const struct subcommand_list *s, const char *word)
{
    const char *names[COUNT_MAX] = {NULL}, *near;
    size_t count = s->count < COUNT_MAX ? s->count : COUNT_MAX;
    for (size_t i = 0; i < count; i++)
        names[i] = s->list[i].name;
    near = args_nearest(word, names, count);
    fprintf(stderr, "hearth %s: there is no '%.64s'; %s", s->command, word,
            near ? "did you mean " : "there are ");
    for (size_t i = 0; !near && i < count; i++)
        fprintf(stderr, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " and ", names[i]);
    fprintf(stderr, "%s\nTry: hearth %s --help\n", near ? near : "", s->command);
    return EXIT_USAGE;
}

int subcommand_find(const struct subcommand_list *s, int argc, char **argv, size_t *index)
{
    if (argc < 2)
        return print_overview(s, stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return print_overview(s, stdout);
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(argv[1], s->list[i].name) != 0)
            continue;
        *index = i;
        return ARGS_GO;
    }
    return refuse(s, argv[1]);
}
