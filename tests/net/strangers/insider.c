/* SPDX-License-Identifier: Apache-2.0 */
/* Those who have the secret, or had it once: one whose knock is heard, one that says to be another member. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/strangers/stranger.h"
#include "security/channel.h"
#include "wire/meeting.h"

struct insider {
    struct heap *heap;
    struct credentials *credentials;
    struct channel *channel;
};

static bool insider_open(struct insider *in, const char *secret_file)
{
    struct error error = {0};
    bool missing;
    in->heap = heap_open(0);
    struct credentials_setup setup = {.heap = in->heap, .instance = 0x1234};
    bool good = secret_load(secret_file, &setup.secret, &missing, &error) == HEARTH_OK &&
                node_key_fresh(&setup.key, &error) == HEARTH_OK &&
                credentials_open(&setup, &in->credentials, &error) == HEARTH_OK;
    struct session_setup dials = {.heap = in->heap, .credentials = in->credentials, .role = CHANNEL_DIALS};
    good = good && channel_open(&dials, &in->channel, &error) == HEARTH_OK;
    if (!good)
        fprintf(stderr, "%s\n", error.text);
    return good;
}

static void insider_close(struct insider *in)
{
    channel_close(in->channel);
    credentials_close(in->credentials);
    heap_close(in->heap);
}

int do_knock(int count, char **arguments)
{
    struct insider in = {0};
    if (count != 2)
        return 2;
    if (!insider_open(&in, arguments[0]))
        return 1;
    struct iovec hello = channel_output(in.channel);
    bool good = hello.iov_len > 0 && write_file(arguments[1], hello.iov_base, hello.iov_len);
    printf("{\"what\":\"knock\",\"bytes\":%zu}\n", hello.iov_len);
    insider_close(&in);
    return good ? 0 : 1;
}

/* ---- one that says to be another ---- */

static bool send_output(struct insider *in, int fd)
{
    for (;;) {
        struct iovec output = channel_output(in->channel);
        if (output.iov_len == 0)
            return true;
        if (!send_all(fd, output.iov_base, output.iov_len))
            return false;
        channel_sent(in->channel, output.iov_len);
    }
}

/* Goes on until a status other than HEARTH_PENDING, or until a message is there. */
static int talk(struct insider *in, int fd, bool for_message, uint8_t *message, size_t *len)
{
    uint8_t bytes[4096];
    struct error error;
    *len = 0;
    for (uint64_t deadline = clock_ms() + PATIENCE_MS; clock_ms() < deadline;) {
        if (!send_output(in, fd))
            return HEARTH_PEER_LOST;
        if (!for_message && channel_ready(in->channel))
            return HEARTH_OK;
        if (for_message && (*len = channel_recv(in->channel, message, MEETING_SMALL_MAX)) > 0)
            return HEARTH_OK;
        size_t wants = channel_wants(in->channel);
        ssize_t got = recv(fd, bytes, wants < sizeof bytes ? wants : sizeof bytes, 0);
        if (got <= 0)
            return HEARTH_PEER_LOST;
        int status = channel_input(in->channel, bytes, (size_t)got, &error);
        if (status != HEARTH_OK && status != HEARTH_PENDING)
            return status;
    }
    return HEARTH_TIMEOUT;
}

static bool claim(struct insider *in)
{
    uint8_t message[MESSAGE_HEADER_LEN + MEETING_SMALL_MAX];
    struct meeting_register r = {
        .version_min = 1, .version_max = 1, .rank = 1, .size = 2, .patience_ms = 5000};
    memcpy(r.space, secret_namespace(credentials_secret(in->credentials)), sizeof r.space);
    memcpy(r.member.id.node.bytes, "not the id of the key we have...", NODE_ID_LEN);
    r.member.id.instance = credentials_self(in->credentials)->instance;
    snprintf(r.member.name, sizeof r.member.name, "impostor");
    size_t len = meeting_register_encode(&r, message + MESSAGE_HEADER_LEN, MEETING_SMALL_MAX);
    message_seal(MEETING_REGISTER, message + MESSAGE_HEADER_LEN, len, NULL, 0, message);
    return channel_send(in->channel, message, MESSAGE_HEADER_LEN + len);
}

int do_claim(int count, char **arguments)
{
    struct insider in = {0};
    struct place place;
    uint8_t message[MEETING_SMALL_MAX];
    size_t len = 0;
    if (count != 3 || !place_parse(arguments + 1, &place))
        return 2;
    int fd = dial(&place, true);
    if (fd < 0 || !insider_open(&in, arguments[0])) {
        fprintf(stderr, "claim: nobody listens, or there is no secret\n");
        return 1;
    }
    int status = talk(&in, fd, false, message, &len);
    bool proven = status == HEARTH_OK;
    if (proven)
        status = claim(&in) ? talk(&in, fd, true, message, &len) : HEARTH_SYSTEM;
    printf("{\"what\":\"claim\",\"proven\":%s,\"status\":\"%s\",\"answer\":%zu,\"answer_kind\":%d}\n",
           proven ? "true" : "false", hearth_status_name(status), len, len >= 4 ? message[3] : -1);
    insider_close(&in);
    close(fd);
    return 0;
}
