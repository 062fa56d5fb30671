/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-member: a member as its environment says, for tests: adds until it is told to stop (its standard
 * input ends), looks at every sum, and tells how it goes, one line of JSON each. The log goes to the standard
 * error.
 *
 *     hearth-member COUNT [MARKER]    elements of an all-reduce; a file of 64 bytes that fills the buffer */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <hearth.h>

#define REPORT_S   0.25
#define MARKER_LEN 16 /* of f32 */

struct work {
    hearth_group *world;
    size_t count;
    float *buffer;
    float marker[MARKER_LEN];
};

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void log_line(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    (void)arg, (void)level;
    fprintf(stderr, "%s %s\n", id, text);
}

static void print_text(const char *name, const char *text)
{
    printf("\"%s\":\"", name);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        if (*text == '\n')
            fputs("\\n", stdout);
        else
            putchar(*text);
    }
    putchar('"');
}

static void print_failed(const char *what, int status)
{
    printf("{\"what\":\"%s\",\"status\":\"%s\",\"at\":%.3f,", what, hearth_status_name(status), clock_s());
    print_text("text", hearth_error_text());
    puts("}");
    fflush(stdout);
}

static void print_open(hearth_node *node)
{
    char links[4096];
    hearth_node_links_text(node, links, sizeof links);
    printf("{\"what\":\"open\",\"rank\":%d,\"pid\":%d,", hearth_group_rank(hearth_node_world(node)),
           (int)getpid());
    print_text("links", links);
    puts("}");
    fflush(stdout);
}

static void print_rounds(unsigned long rounds, double seconds)
{
    printf("{\"what\":\"sums\",\"rounds\":%lu,\"seconds\":%.6f,\"at\":%.3f}\n", rounds, seconds, clock_s());
    fflush(stdout);
}

/* The parent has closed its end, or wrote something. */
static int told_to_stop(void)
{
    return poll(&(struct pollfd){.fd = 0, .events = POLLIN}, 1, 0) != 0;
}

/* One all-reduce; the last element tells all whether one of them was told to stop. */
static int add(struct work *w, int stop, int *stopped)
{
    float *x = w->buffer, size = (float)hearth_group_size(w->world);
    for (size_t i = 0; i < w->count; i++)
        x[i] = w->marker[i % MARKER_LEN];
    x[w->count] = (float)stop;
    int status = hearth_all_reduce(w->world, x, x, w->count + 1, HEARTH_F32, HEARTH_OP_SUM, NULL);
    if (status != HEARTH_OK)
        return status;
    for (size_t i = 0; i < w->count; i++)
        if (x[i] != size * w->marker[i % MARKER_LEN]) {
            printf("{\"what\":\"wrong\",\"element\":%zu}\n", i);
            return HEARTH_PROTOCOL;
        }
    *stopped = x[w->count] != 0;
    return HEARTH_OK;
}

static int add_until_stopped(struct work *w)
{
    unsigned long rounds = 0;
    int stopped = 0, status = HEARTH_OK;
    double begin = clock_s();
    while (status == HEARTH_OK && !stopped) {
        status = add(w, told_to_stop(), &stopped);
        rounds += status == HEARTH_OK;
        double now = clock_s();
        if (now - begin >= REPORT_S || status != HEARTH_OK || stopped) {
            print_rounds(rounds, now - begin);
            rounds = 0;
            begin = now;
        }
    }
    return status;
}

static int marker_read(struct work *w, const char *path)
{
    FILE *file = path ? fopen(path, "rb") : NULL;
    for (int i = 0; i < MARKER_LEN; i++)
        w->marker[i] = (float)(i + 1);
    if (!path)
        return 0;
    size_t got = file ? fread(w->marker, sizeof *w->marker, MARKER_LEN, file) : 0;
    if (file)
        fclose(file);
    return got == MARKER_LEN ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct hearth_config config;
    hearth_node *node;
    struct work w = {.count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0};
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2 || argc > 3 || w.count == 0 || marker_read(&w, argc > 2 ? argv[2] : NULL) != 0) {
        fprintf(stderr, "usage: hearth-member COUNT [MARKER-FILE]\n");
        return 2;
    }
    hearth_config_init(&config);
    config.log = log_line;
    int status = hearth_config_env(&config);
    if (status == HEARTH_OK)
        status = hearth_node_open(&config, &node);
    if (status != HEARTH_OK) {
        print_failed("not open", status);
        return 1;
    }
    print_open(node);
    w.world = hearth_node_world(node);
    w.buffer = malloc((w.count + 1) * sizeof *w.buffer);
    status = w.buffer ? add_until_stopped(&w) : HEARTH_NO_MEMORY;
    if (status != HEARTH_OK)
        print_failed("failed", status);
    else
        puts("{\"what\":\"done\"}");
    free(w.buffer);
    hearth_node_close(node);
    return status == HEARTH_OK ? 0 : 1;
}
