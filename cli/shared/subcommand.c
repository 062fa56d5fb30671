/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a subcommand by its name, shows them all, and helps who has mistyped one. */
#include "cli/shared/subcommand.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/shared/args.h"
#include "cli/shared/text.h"

#define COUNT_MAX 32

static int print_overview(const struct subcommand_list *s, FILE *file)
{
    const char *bold = paint(file, PAINT_BOLD), *none = paint(file, PAINT_NONE);
    const char *space = s->command ? " " : "", *command = s->command ? s->command : "";
    fprintf(file, "%s\n\n%susage:%s hearth%s%s %s [options]\n\n", s->about, bold, none, space, command,
            s->command ? "WHAT" : "COMMAND");
    for (size_t i = 0; i < s->count; i++)
        fprintf(file, "  %s%-9s%s %s\n            %s\n", bold, s->list[i].name, none, s->list[i].brief,
                s->list[i].example);
    fprintf(file, "  %s%-9s%s what one takes: hearth%s%s help NAME, or hearth%s%s NAME --help\n", bold,
            "help", none, space, command, space, command);
    return file == stdout ? EXIT_GOOD : EXIT_USAGE;
}

static const struct subcommand *find(const struct subcommand_list *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->list[i].name, name) == 0)
            return &s->list[i];
    }
    return NULL;
}

static int refuse(const struct subcommand_list *s, const char *word)
{
    const char *names[COUNT_MAX + 1] = {"help"};
    size_t count = s->count < COUNT_MAX ? s->count : COUNT_MAX;
    const char *space = s->command ? " " : "", *command = s->command ? s->command : "";
    for (size_t i = 0; i < count; i++)
        names[i + 1] = s->list[i].name;
    const char *near = word[0] == '-' ? NULL : args_nearest(word, names, count + 1);
    fprintf(stderr, "hearth%s%s: there is no ", space, command);
    if (word[0] == '-')
        fprintf(stderr, "flag %.64s here; a %s comes first", word, s->what);
    else
        fprintf(stderr, "%s '%.64s'", s->what, word);
    if (near)
        fprintf(stderr, "; did you mean '%s'?", near);
    fprintf(stderr, "\nTry: hearth%s%s help\n", space, command);
    return EXIT_USAGE;
}

int subcommand_run(const struct subcommand_list *s, int argc, char **argv)
{
    char flag[] = "--help", *helped[] = {argv[0], NULL, flag, NULL};
    if (argc < 2)
        return print_overview(s, stderr);
    bool help = strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    if (help && argc == 2)
        return print_overview(s, stdout);
    const struct subcommand *found = find(s, argv[1 + help]);
    if (!found)
        return refuse(s, argv[1 + help]);
    helped[1] = argv[1 + help];
    if (help)
        argc = 3, argv = helped;
    return s->command ? found->run(argc, argv) : found->run(argc - 1, argv + 1);
}
