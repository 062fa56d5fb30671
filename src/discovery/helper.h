/* SPDX-License-Identifier: Apache-2.0 */
/* The process that speaks mDNS for us: started, restarted with growing pauses, listened to. It may crash,
 * hang, flood or write rubbish: that costs us a bounded amount of work and memory, and discovery a while. */
#pragma once

#include "core/log.h"
#include "discovery/mdns_line.h"
#include "os/spawn.h"

#define HELPER_PATH_MAX  4096
#define HELPER_OUT_MAX   20480 /* all that there is to say at once */
#define HELPER_TOLD_MAX  64    /* warnings of it that the log has, each once */
#define HELPER_FIRST_NS  (250 * NS_PER_MS)
#define HELPER_LAST_NS   (30 * NS_PER_S)
#define HELPER_HEALTH_NS (60 * NS_PER_S) /* a life of that length is a good one: pauses are short again */

typedef void helper_line_fn(void *arg, const struct mdns_line *line);

struct helper {
    struct log log;
    helper_line_fn *heard; /* `found` and `lost` */
    void *arg;
    char path[HELPER_PATH_MAX]; /* as given; "" and `searched`: looked for at each start */
    bool searched, off;
    struct child child;
    bool running, ready;
    uint64_t started_ns, next_ns, pause_ns;
    bool closed; /* its output has ended, and so will it */
    uint64_t closed_ns, glance_ns;
    struct mdns_input in;
    char out[HELPER_OUT_MAX];
    size_t out_len, out_done;
    uint64_t out_ns; /* when it last took something */
    uint64_t window_ns;
    size_t window_bytes; /* read since then */
    int malformed;       /* lines in this life */
    uint64_t told[HELPER_TOLD_MAX];
    int told_count;
    char last_warning[128]; /* of this life: often why it ended */
    char why[256];          /* it does not run, or is not ready */
};

/* `path` as in struct finder_setup. */
void helper_init(struct helper *helper, const struct log *log, const char *path, helper_line_fn *heard,
                 void *arg);
void helper_fini(struct helper *helper); /* ends it; bounded by half a second */

enum helper_news { HELPER_SAME, HELPER_BEGAN, HELPER_ENDED };
/* BEGAN: it knows nothing yet. */
enum helper_news helper_pump(struct helper *helper, uint64_t now_ns);
bool helper_idle(const struct helper *helper); /* runs, and has taken all that was said */
/* Only when idle, up to HELPER_OUT_MAX in all; goes out with the next pump. */
void helper_say(struct helper *helper, const char *line, size_t len, uint64_t now_ns);
bool helper_wait(const struct helper *helper, struct sock_wait *item); /* false: none */
uint64_t helper_deadline(const struct helper *helper);
