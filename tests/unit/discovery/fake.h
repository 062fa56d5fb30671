/* SPDX-License-Identifier: Apache-2.0 */
/* A helper made of a shell script, a finder that listens to it, and time that is ours. */
#pragma once

#include "discovery/finder.h"

#define FAKE_SPACE "00112233445566778899aabbccddeeff"
#define FAKE_NODE  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct fake {
    char folder[64], script[96];
    struct heap heap;
    struct finder *finder;
    uint64_t now_ns; /* what the finder is told */
    char log[65536]; /* all lines of it, each ends with a newline */
    size_t log_len;
    int log_lines;
};

/* The lines are the script, behind "#!/bin/sh". NULL: there is no such program. */
void fake_open(struct fake *fake, const char *lines, const char *seeds);
void fake_close(struct fake *fake);                      /* all memory and all files must be gone */
void fake_replace(struct fake *fake, const char *lines); /* for the next life */

/* Pumps, with real waiting and our time standing still, until the log holds the text; fails after a while. */
void fake_until_logged(struct fake *fake, const char *text);
void fake_until_count(struct fake *fake, int sightings);
void fake_pump(struct fake *fake);            /* once, after waiting for something for a moment at most */
int fake_helper_pid(const struct fake *fake); /* as finder_text tells; 0: none */
/* A `found` line, with its newline, for scripts. */
const char *fake_found(char *line, size_t size, const char *key, const char *addr, unsigned instance);
struct sighting fake_self(unsigned instance);
