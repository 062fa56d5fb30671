/* SPDX-License-Identifier: Apache-2.0 */
/* Members with keys of their own, for tests of what they say to each other. */
#pragma once

#include "connect/secure_stream.h"
#include "core/log.h"

/* A new key; `secret` is the byte that fills the cluster's. Asserts. */
struct credentials *person(struct heap *heap, uint8_t secret, uint64_t instance);
/* One that has revoked this id, in a file that is gone again. */
struct credentials *person_against(struct heap *heap, uint8_t secret, uint64_t instance,
                                   const struct node_id *revoked);

void tcp_pair(int fds[2]); /* as sock_pair, but TCP: what does not fit is cut anywhere */

/* A listening end reads what it is sent through a real socket: looks until `done` says so, for a bounded
 * number of times, and gives the last answer. */
#define LOOKS_MAX 400
bool look(bool (*done)(void *arg), void *arg, int fd);

/* What was logged under an id, and the last line of it that was at WARN or above. */
struct notes {
    const char *id;
    int lines, warnings;
    char last[400];
};
struct log notes_log(struct notes *notes, const char *id);

/* Tests that run plain, with a handshake, or both: the state that `setup` gets is NULL, or not. */
#define TEST_PLAIN(name, setup, teardown)                                                                    \
    static void name(void **state);                                                                          \
    TEST_IS(plain, NULL, name, setup, teardown)                                                              \
    static void name(__attribute__((unused)) void **state)
#define TEST_SECURE(name, setup, teardown)                                                                   \
    static void name(void **state);                                                                          \
    TEST_IS(secure, "", name, setup, teardown)                                                               \
    static void name(__attribute__((unused)) void **state)
#define TEST_BOTH(name, setup, teardown)                                                                     \
    static void name(void **state);                                                                          \
    TEST_IS(plain, NULL, name, setup, teardown)                                                              \
    TEST_IS(secure, "", name, setup, teardown)                                                               \
    static void name(__attribute__((unused)) void **state)
#define TEST_IS(way, state, name, setup, teardown)                                                           \
    __attribute__((constructor)) static void name##_is_##way(void)                                           \
    {                                                                                                        \
        suite_add(&(struct CMUnitTest){#way ": " #name, name, setup, teardown, (void *)(uintptr_t)(state)}); \
    }
