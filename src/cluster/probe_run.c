/* SPDX-License-Identifier: Apache-2.0 */
/* The sender fills the connection; the receiver measures and returns the result. */
#include "cluster/probe_run.h"

#include <assert.h>

#include "cluster/peer_hello.h"
#include "cluster/probe_meter.h"
#include "os/clock.h"

#define LOAD_LEN    (MESSAGE_HEADER_LEN + LOAD_PAYLOAD_MAX)
#define BYTES_MIN   (256u * 1024)          /* a sender sends at least so much */
#define WORK_MAX    (1024u * 1024)         /* bytes per call: the thread has other work */
#define DEADLINE_NS (3 * NS_PER_S)         /* of the whole run */
#define LISTEN_NS   (DEADLINE_NS * 9 / 10) /* then a receiver returns what it has */

static_assert(LOAD_LEN == SECURE_STREAM_MESSAGE_MAX, "a load is one record");

enum probe_phase {
    PHASE_LOAD, /* the burst */
    PHASE_TELL, /* sender: waits for the result; receiver: has sent it, waits for the end */
};

struct probe_run {
    struct secure_stream *stream;
    bool sends;
    enum probe_phase phase;
    uint64_t begun_ns, burst_ns;
    uint64_t bytes;                                /* sent, or received */
    uint8_t *load;                                 /* sender: the message; receiver: buffer for the payload */
    size_t got;                                    /* bytes of the current message */
    uint8_t head[MESSAGE_HEADER_LEN + RESULT_LEN]; /* its first bytes */
    struct message_header header;
    bool told; /* receiver: the result is sent */
    struct meter *meter;
    struct probe_result result;
};

/* All but the last are equal: the checksum is computed once, and the receiver ignores it. */
static void load_seal(uint8_t *load, uint8_t what)
{
    load[MESSAGE_HEADER_LEN] = what;
    message_seal(MESSAGE_LOAD, load + MESSAGE_HEADER_LEN, LOAD_PAYLOAD_MAX, NULL, 0, load);
}

int probe_run_open(const struct probe_run_setup *setup, struct probe_run **out)
{
    struct probe_run *run = heap_alloc(setup->heap, 1, sizeof *run);
    uint8_t *load = heap_alloc(setup->heap, 1, LOAD_LEN);
    struct meter *meter = setup->sends ? NULL : heap_alloc(setup->heap, 1, sizeof *meter);

    if (!run || !load || (!meter && !setup->sends)) {
        heap_free(run);
        heap_free(load);
        heap_free(meter);
        secure_stream_close(setup->stream);
        return HEARTH_NO_MEMORY;
    }
    if (meter)
        meter_mark(meter, 0, setup->now_ns);
    load_seal(load, LOAD_MORE);
    *run = (struct probe_run){.stream = setup->stream,
                              .sends = setup->sends,
                              .begun_ns = setup->now_ns,
                              .burst_ns = setup->burst_ns,
                              .load = load,
                              .meter = meter};
    *out = run;
    return HEARTH_OK;
}

void probe_run_close(struct probe_run *run)
{
    if (!run)
        return;
    secure_stream_close(run->stream);
    heap_free(run->load);
    heap_free(run->meter);
    heap_free(run);
}

/* ---- messages in -------------------------------------------------------------------------------------- */

/* Missing bytes of the current message: its head first, then the rest. */
static size_t lacks(const struct probe_run *run)
{
    return run->got < MESSAGE_HEADER_LEN ? MESSAGE_HEADER_LEN - run->got
                                         : MESSAGE_HEADER_LEN + run->header.len - run->got;
}

static bool head_good(struct probe_run *run)
{
    const char *what;

    return message_header_decode(&run->header, run->head, &probe_kinds, &what) == HEARTH_OK &&
           (run->sends ? run->header.len == RESULT_LEN : run->header.len >= 1);
}

/* Reads from the current message, keeping only its first bytes. Returns bytes; 0: none now; else the
 * error. */
static ssize_t read_some(struct probe_run *run)
{
    bool keeps = run->got < sizeof run->head;
    uint8_t *target = keeps ? run->head + run->got : run->load;
    size_t room = keeps ? sizeof run->head - run->got : LOAD_LEN, want = lacks(run);
    ssize_t len = secure_stream_recv(run->stream, target, want < room ? want : room);

    if (len <= 0)
        return len;
    run->got += (size_t)len;
    if (run->got == MESSAGE_HEADER_LEN && !head_good(run))
        return HEARTH_PROTOCOL;
    return len;
}

static bool message_whole(const struct probe_run *run)
{
    return run->got > MESSAGE_HEADER_LEN && lacks(run) == 0;
}

/* ---- the receiver ------------------------------------------------------------------------------------ */

/* HEARTH_PENDING: waits for more. HEARTH_OK: the last load has arrived. */
static int listen_on(struct probe_run *run)
{
    /* Never stops within a message: bytes decrypted already do not make the socket readable again. */
    for (uint64_t end = run->bytes + WORK_MAX; run->bytes < end || run->got > 0;) {
        ssize_t len = read_some(run);
        if (len < 0)
            return (int)len;
        run->bytes += (uint64_t)len;
        if (run->bytes > METER_BYTES_MAX + LOAD_LEN)
            return HEARTH_PROTOCOL;
        if (len == 0) {
            meter_mark(run->meter, run->bytes, clock_real());
            return HEARTH_PENDING;
        }
        if (message_whole(run)) {
            uint8_t what = run->head[MESSAGE_HEADER_LEN];
            run->got = 0;
            if (what != LOAD_MORE)
                return what == LOAD_LAST ? HEARTH_OK : HEARTH_PROTOCOL;
        }
    }
    return HEARTH_PENDING; /* there is more: no mark, since its arrival time is unknown */
}

static void tell(struct probe_run *run)
{
    uint8_t message[MESSAGE_HEADER_LEN + RESULT_LEN];

    probe_result_encode(&run->result, message + MESSAGE_HEADER_LEN);
    message_seal(MESSAGE_LOAD, message + MESSAGE_HEADER_LEN, RESULT_LEN, NULL, 0, message);
    if (!run->told)
        run->told = secure_stream_send(run->stream, message, sizeof message);
}

/* Reads until the sender closes: closing with unread bytes would lose the result. */
static int drain(struct probe_run *run)
{
    struct error error;
    ssize_t len = 0;

    for (uint64_t read = 0; read < WORK_MAX; read += (uint64_t)len) {
        len = secure_stream_recv(run->stream, run->load, LOAD_LEN);
        if (len <= 0)
            break;
    }
    if (len >= 0 && secure_stream_pump(run->stream, &error) == HEARTH_OK)
        return HEARTH_PENDING;
    return run->told && run->result.mbit_x10 > 0 ? HEARTH_OK : HEARTH_PEER_LOST;
}

static int receive(struct probe_run *run, uint64_t now_ns)
{
    if (run->phase == PHASE_LOAD) {
        int status = listen_on(run);
        if (status == HEARTH_PENDING && now_ns < run->begun_ns + LISTEN_NS)
            return status;
        if (status != HEARTH_OK && status != HEARTH_PENDING)
            return status;
        meter_mark(run->meter, run->bytes, clock_real());
        meter_result(run->meter, &run->result);
        run->phase = PHASE_TELL;
    }
    tell(run);
    return drain(run);
}

/* ---- the sender -------------------------------------------------------------------------------------- */

static bool enough(const struct probe_run *run)
{
    return run->bytes + LOAD_LEN >= METER_BYTES_MAX ||
           (run->bytes + LOAD_LEN >= BYTES_MIN && clock_real() >= run->begun_ns + run->burst_ns);
}

/* HEARTH_OK: all is sent. */
static int burst(struct probe_run *run)
{
    struct error error;

    for (uint64_t end = run->bytes + WORK_MAX; run->bytes < end;) {
        bool last = enough(run);
        if (last)
            load_seal(run->load, LOAD_LAST);
        if (!secure_stream_send(run->stream, run->load, LOAD_LEN))
            return secure_stream_pump(run->stream, &error) == HEARTH_OK ? HEARTH_PENDING : HEARTH_PEER_LOST;
        run->bytes += LOAD_LEN;
        if (last)
            return HEARTH_OK;
    }
    return HEARTH_PENDING;
}

static int hear(struct probe_run *run)
{
    while (!message_whole(run)) {
        ssize_t len = read_some(run);
        if (len <= 0)
            return len == 0 ? HEARTH_PENDING : (int)len;
    }
    if (!message_intact(&run->header, run->head + MESSAGE_HEADER_LEN) ||
        !probe_result_decode(&run->result, run->head + MESSAGE_HEADER_LEN, run->header.len))
        return HEARTH_PROTOCOL;
    return run->result.mbit_x10 > 0 ? HEARTH_OK : HEARTH_TIMEOUT;
}

/* The result may arrive before all is sent: a receiver waits less long. */
static int send_load(struct probe_run *run)
{
    struct error error;

    if (run->phase == PHASE_LOAD) {
        int status = burst(run);
        if (status != HEARTH_OK && status != HEARTH_PENDING)
            return status;
        run->phase = status == HEARTH_OK ? PHASE_TELL : PHASE_LOAD;
    }
    if (secure_stream_pump(run->stream, &error) != HEARTH_OK)
        return HEARTH_PEER_LOST;
    return hear(run);
}

/* ---- both -------------------------------------------------------------------------------------------- */

int probe_run_pump(struct probe_run *run)
{
    uint64_t now_ns = clock_real();
    int status = run->sends ? send_load(run) : receive(run, now_ns);

    if (status == HEARTH_PENDING && now_ns >= run->begun_ns + DEADLINE_NS)
        return run->told && run->result.mbit_x10 > 0 ? HEARTH_OK : HEARTH_TIMEOUT;
    return status;
}

const struct probe_result *probe_run_result(const struct probe_run *run)
{
    return &run->result;
}

uint64_t probe_run_time(const struct probe_run *run)
{
    uint64_t now_ns = clock_real();
    return now_ns > run->begun_ns ? now_ns - run->begun_ns : 0;
}

int probe_run_fd(const struct probe_run *run)
{
    return secure_stream_fd(run->stream);
}

struct sock_wait probe_run_wait(const struct probe_run *run, uint64_t *deadline_ns)
{
    bool listens = !run->sends && run->phase == PHASE_LOAD;
    uint64_t due_ns = run->begun_ns + (listens ? LISTEN_NS : DEADLINE_NS);
    bool sends = run->sends ? run->phase == PHASE_LOAD : run->phase == PHASE_TELL && !run->told;

    if (due_ns < *deadline_ns)
        *deadline_ns = due_ns;
    return (struct sock_wait){.fd = secure_stream_fd(run->stream),
                              .want_recv = true,
                              .want_send = sends || secure_stream_wants_send(run->stream)};
}
