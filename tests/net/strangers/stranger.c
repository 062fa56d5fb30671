/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-stranger: attacks on members, one each time. */
#include "net/strangers/stranger.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/prng.h"
#include "net/strangers/sights.h"
#include "wire/greeting.h"
#include "wire/meeting.h"

#define RECORDED_MAX (1u << 20)

/* ---- replay: what a member once sent, byte for byte ---- */

static int do_replay(int count, char **arguments)
{
    struct place place;
    struct sight sight = {0};
    static uint8_t recorded[RECORDED_MAX];
    if (count != 3 || !place_parse(arguments, &place))
        return 2;
    size_t len = read_file(arguments[2], recorded, sizeof recorded);
    int fd = dial(&place, true);
    if (len == 0 || fd < 0) {
        fprintf(stderr, "replay: %s\n", len == 0 ? "nothing was recorded" : "nobody listens");
        return 1;
    }
    bool sent = send_all(fd, recorded, len); /* it may be closed while we speak, which is fine */
    watch(fd, PATIENCE_MS, &sight);
    char more[64];
    snprintf(more, sizeof more, ",\"recorded\":%zu,\"all_sent\":%s", len, sent ? "true" : "false");
    sight_print("replay", &sight, more);
    close(fd);
    return 0;
}

/* ---- plain: what was said before there was a handshake ---- */

static size_t plain_register(uint8_t *target)
{
    uint8_t payload[MEETING_SMALL_MAX];
    struct meeting_register r = {
        .version_min = 1, .version_max = 1, .rank = 1, .size = 2, .patience_ms = 5000};
    r.member.id.instance = 0x5eed;
    snprintf(r.member.name, sizeof r.member.name, "stranger");
    size_t len = meeting_register_encode(&r, payload, sizeof payload);
    message_seal(MEETING_REGISTER, payload, len, NULL, 0, target);
    memcpy(target + MESSAGE_HEADER_LEN, payload, len);
    return MESSAGE_HEADER_LEN + len;
}

static int do_plain(int count, char **arguments)
{
    struct place place;
    uint8_t bytes[MESSAGE_HEADER_LEN + MEETING_SMALL_MAX];
    if (count != 2 || !place_parse(arguments, &place))
        return 2;
    struct greeting greet = {
        .kind = GREETING_GREET, .from = 1, .cluster = 1, .from_instance = 1, .to_instance = 2};
    for (int i = 0; i < 2; i++) {
        struct sight sight = {0};
        int fd = dial(&place, true);
        if (fd < 0) {
            fprintf(stderr, "plain: nobody listens\n");
            return 1;
        }
        size_t len = GREETING_LEN;
        if (i == 0)
            len = plain_register(bytes);
        else
            greeting_encode(&greet, bytes);
        send_all(fd, bytes, len);
        watch(fd, PATIENCE_MS, &sight);
        sight_print(i == 0 ? "plain register" : "plain greeting", &sight, "");
        close(fd);
    }
    return 0;
}

/* ---- garbage-udp ---- */

/* Random bytes, and what looks like QUIC: long headers of its version and of none, short ones. */
static size_t datagram_draw(struct prng *prng, uint8_t target[static 1500])
{
    size_t len = 1 + prng_below(prng, 1472);
    uint64_t kind = prng_below(prng, 4);
    if (kind > 0 && len < 1200)
        len = 1200;
    for (size_t i = 0; i < len; i++)
        target[i] = (uint8_t)prng_u64(prng);
    if (kind == 0)
        return len;
    target[0] = kind == 3 ? (uint8_t)(0x40 | (target[0] & 0x3f)) : (uint8_t)(0xc0 | (target[0] & 0x3f));
    if (kind == 3)
        return len;
    memcpy(target + 1, kind == 1 ? "\0\0\0\1" : "\x1a\x2a\x3a\x4a", 4);
    target[5] = (uint8_t)(8 + target[5] % 13);      /* of the id that it is sent to */
    target[6 + target[5]] = 8;                      /* of the id that it comes from */
    target[15 + target[5]] = 0;                     /* no token */
    memcpy(target + 16 + target[5], "\x44\x00", 2); /* 1024 bytes follow */
    return len;
}

static int do_garbage_udp(int count, char **arguments)
{
    struct place place;
    struct prng prng;
    uint8_t bytes[1500], answer[1500];
    uint64_t sent = 0, sent_bytes = 0, answers = 0, answer_bytes = 0;
    if (count != 3 || !place_parse(arguments, &place))
        return 2;
    int fd = dial_udp(&place);
    prng_init(&prng, 1);
    for (long n = strtol(arguments[2], NULL, 10); n > 0; n--) {
        size_t len = datagram_draw(&prng, bytes);
        if (send(fd, bytes, len, 0) == (ssize_t)len) { /* else nobody listens, or there is no room */
            sent++;
            sent_bytes += len;
        }
        for (ssize_t got; (got = recv(fd, answer, sizeof answer, MSG_DONTWAIT)) > 0; answers++)
            answer_bytes += (uint64_t)got;
    }
    while (readable(fd, 300)) {
        ssize_t got = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
        if (got <= 0)
            break;
        answers++;
        answer_bytes += (uint64_t)got;
    }
    printf("{\"what\":\"garbage-udp\",\"sent\":%llu,\"sent_bytes\":%llu,\"answers\":%llu,\"answer_bytes\":%"
           "llu}\n",
           (unsigned long long)sent, (unsigned long long)sent_bytes, (unsigned long long)answers,
           (unsigned long long)answer_bytes);
    close(fd);
    return 0;
}

/* ---- all of them ---- */

static const struct deed {
    const char *name, *arguments;
    int (*run)(int count, char **arguments);
} deeds[] = {
    {"flood", "HOST PORT N [all|MODE [KNOCK-FILE]]", do_flood},
    {"garbage-udp", "HOST PORT N", do_garbage_udp},
    {"mitm", "LISTEN HOST PORT", do_mitm},
    {"record", "LISTEN HOST PORT FILE", do_record},
    {"replay", "HOST PORT FILE", do_replay},
    {"tls12", "HOST PORT [KNOCK-FILE]", do_tls12},
    {"guess", "HOST PORT KNOCK-FILE", do_guess},
    {"plain", "HOST PORT", do_plain},
    {"knock", "SECRET-FILE KNOCK-FILE", do_knock},
    {"claim", "SECRET-FILE HOST PORT", do_claim},
};
#define DEEDS (sizeof deeds / sizeof *deeds)

static int usage(FILE *file)
{
    for (size_t i = 0; i < DEEDS; i++)
        fprintf(file, "%s hearth-stranger %s %s\n", i == 0 ? "usage:" : "      ", deeds[i].name,
                deeds[i].arguments);
    return file == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return usage(stdout);
    for (size_t i = 0; argc > 1 && i < DEEDS; i++)
        if (strcmp(argv[1], deeds[i].name) == 0) {
            int status = deeds[i].run(argc - 2, argv + 2);
            return status == 2 ? usage(stderr) : status;
        }
    return usage(stderr);
}
