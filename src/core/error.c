/* SPDX-License-Identifier: Apache-2.0 */
/* The list of statuses with their sentences, and errors with a text. */
#include "core/error.h"

#include <stdio.h>
#include <string.h>

struct status_row {
    int status;
    const char *name;
    const char *sentence;
};

static const struct status_row statuses[] = {
    {HEARTH_OK, "HEARTH_OK", "No error."},
    {HEARTH_BEHIND, "HEARTH_BEHIND",
     "Not an error: the group stands, but this member lacks steps that others have: take the model from one "
     "that has them."},
    {HEARTH_INVALID, "HEARTH_INVALID",
     "An argument, variable or name is not acceptable: correct the call and make it again."},
    {HEARTH_UNSUPPORTED, "HEARTH_UNSUPPORTED",
     "This version, build or combination does not have it: choose another algorithm, type or operation."},
    {HEARTH_TIMEOUT, "HEARTH_TIMEOUT",
     "The operation's deadline passed: look at the member that was waited for, or allow more time."},
    {HEARTH_CANCELLED, "HEARTH_CANCELLED", "The operation was cancelled here."},
    {HEARTH_ABORTED, "HEARTH_ABORTED",
     "Another member ended the operation: its reason is in the error text, there is nothing to correct "
     "here."},
    {HEARTH_MISMATCH, "HEARTH_MISMATCH",
     "Members called different things: make all of them call the same collective with the same arguments."},
    {HEARTH_DIFFERS, "HEARTH_DIFFERS",
     "Not all members hold the same bytes: broadcast them from a member that you trust."},
    {HEARTH_POISONED, "HEARTH_POISONED",
     "There is NaN or Inf where none may be: skip this step, or lower the loss scale."},
    {HEARTH_NO_MEMORY, "HEARTH_NO_MEMORY",
     "Memory or the configured memory limit is used up: raise the limit or run fewer operations at once."},
    {HEARTH_LIMIT, "HEARTH_LIMIT",
     "A limit is reached: wait for operations to end, or raise the limit in the configuration."},
    {HEARTH_TOO_LONG, "HEARTH_TOO_LONG",
     "A message or a reply is longer than its receiver takes: give it more room, or send less."},
    {HEARTH_NO_SUCH_CALL, "HEARTH_NO_SUCH_CALL",
     "No handler has this name on the called member: register it there before the call."},
    {HEARTH_CALL_FAILED, "HEARTH_CALL_FAILED", "The handler of the call failed: its own text says why."},
    {HEARTH_BUSY, "HEARTH_BUSY",
     "Too many calls wait on the called member: make the call again later, or raise the handler's limits."},
    {HEARTH_COPY_FAILED, "HEARTH_COPY_FAILED",
     "The memory adapter could not copy to or from the device: the error text names its function and what it "
     "returned."},
    {HEARTH_PENDING, "HEARTH_PENDING", "Not an error: the operation has not finished yet."},
    {HEARTH_PEER_LOST, "HEARTH_PEER_LOST",
     "A member closed, died or stopped answering: look at its log, then form the group again."},
    {HEARTH_PROTOCOL, "HEARTH_PROTOCOL",
     "A member sent bytes that break the protocol: check that all members run compatible versions."},
    {HEARTH_VIEW_CHANGED, "HEARTH_VIEW_CHANGED",
     "The members of the group changed: take the new group and make the call again."},
    {HEARTH_GROUP_BROKEN, "HEARTH_GROUP_BROKEN",
     "The group lost a member earlier and cannot go on: form a new group."},
    {HEARTH_FORKED, "HEARTH_FORKED",
     "The node belongs to the process that opened it: open one in the child, after the fork."},
    {HEARTH_CLOSED, "HEARTH_CLOSED", "The node is closing: open a new one."},
    {HEARTH_SYSTEM, "HEARTH_SYSTEM",
     "The operating system refused something that the node needs: the error text names the call and its "
     "error."},
};

static const char *const reason_names[REASON_COUNT] = {
    [HEARTH_REASON_NONE] = "none",
    [HEARTH_REASON_PEER_CLOSED] = "peer_closed",
    [HEARTH_REASON_PEER_LEFT] = "peer_left",
    [HEARTH_REASON_PEER_SILENT] = "peer_silent",
    [HEARTH_REASON_PEER_REMOVED] = "peer_removed",
    [HEARTH_REASON_TIMED_OUT] = "timed_out",
    [HEARTH_REASON_CANCELLED] = "cancelled",
    [HEARTH_REASON_NO_MEMORY] = "no_memory",
    [HEARTH_REASON_SECRET_DIFFERS] = "secret_differs",
    [HEARTH_REASON_KEY_REFUSED] = "key_refused",
    [HEARTH_REASON_VERSION_DIFFERS] = "version_differs",
    [HEARTH_REASON_SETTINGS_DIFFER] = "settings_differ",
    [HEARTH_REASON_ADDRESS_IN_USE] = "address_in_use",
    [HEARTH_REASON_UNREACHABLE] = "unreachable",
    [HEARTH_REASON_NOT_HEARTH] = "not_hearth",
    [HEARTH_REASON_BUSY] = "busy",
};

static const struct status_row *status_find(int status)
{
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        if (statuses[i].status == status)
            return &statuses[i];
    return NULL;
}

bool status_is_error(int status)
{
    return status < HEARTH_OK && status_find(status);
}

const char *hearth_status_name(int status)
{
    const struct status_row *row = status_find(status);
    return row ? row->name : "HEARTH_?";
}

const char *hearth_status_text(int status)
{
    const struct status_row *row = status_find(status);
    return row ? row->sentence : "This number is not a status of this version of Hearth.";
}

enum hearth_scope hearth_status_scope(int status)
{
    return status_is_error(status) ? (enum hearth_scope)(status / -100) : HEARTH_SCOPE_NONE;
}

const char *hearth_reason_name(enum hearth_reason reason)
{
    return (unsigned)reason < REASON_COUNT ? reason_names[reason] : "?";
}

enum hearth_reason status_reason(int status)
{
    return status == HEARTH_TIMEOUT     ? HEARTH_REASON_TIMED_OUT
           : status == HEARTH_CANCELLED ? HEARTH_REASON_CANCELLED
           : status == HEARTH_NO_MEMORY ? HEARTH_REASON_NO_MEMORY
           : status == HEARTH_CLOSED    ? HEARTH_REASON_PEER_LEFT
                                        : HEARTH_REASON_NONE;
}

void error_clear(struct error *error)
{
    error->status = HEARTH_OK;
    error->reason = HEARTH_REASON_NONE;
    error->rank = error->origin = RANK_NONE;
    error->fate = HEARTH_FATE_NONE;
    error->text[0] = '\0';
}

int error_vset(struct error *error, int status, int rank, const char *format, va_list args)
{
    /* Not straight into error->text: it may be one of the arguments, when an error is wrapped in another. */
    char text[ERROR_TEXT_MAX];

    if (!error)
        return status;
    int len = vsnprintf(text, sizeof text, format, args);
    if (len < 0)
        snprintf(text, sizeof text, "%s", hearth_status_text(status));
    else if ((size_t)len >= sizeof text)
        memcpy(text + sizeof text - 4, "...", 4);
    error->status = status;
    error->reason = HEARTH_REASON_NONE;
    error->rank = rank;
    error->origin = RANK_NONE;
    error->fate = HEARTH_FATE_NONE;
    memcpy(error->text, text, strlen(text) + 1);
    return status;
}

int error_set(struct error *error, int status, int rank, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    error_vset(error, status, rank, format, args);
    va_end(args);
    return status;
}

int error_because(struct error *error, enum hearth_reason reason, int status, int rank, const char *format,
                  ...)
{
    va_list args;

    va_start(args, format);
    error_vset(error, status, rank, format, args);
    va_end(args);
    if (error)
        error->reason = reason;
    return status;
}

int error_wrap(struct error *error, const struct error *cause, const char *format, ...)
{
    struct error wrapped = *cause;
    va_list args;

    va_start(args, format);
    error_vset(&wrapped, cause->status, cause->rank, format, args);
    va_end(args);
    wrapped.reason = cause->reason;
    wrapped.origin = cause->origin;
    wrapped.fate = cause->fate;
    *error = wrapped;
    return error->status;
}

void error_show(const struct error *error, char text[static ERROR_TEXT_MAX])
{
    static const char advice[] = "; hearth_group_reform gives the next group";
    const size_t room = ERROR_TEXT_MAX - sizeof advice;
    size_t len = strlen(error->text);

    memcpy(text, error->text, len + 1);
    if (error->status != HEARTH_VIEW_CHANGED)
        return;
    if (len > room) {
        len = room;
        memcpy(text + len - 3, "...", 3);
    }
    memcpy(text + len, advice, sizeof advice);
}

struct tag_text tag_text(uint64_t tag)
{
    struct tag_text text = {""};
    if (tag <= UINT32_MAX)
        snprintf(text.s, sizeof text.s, " (tag %u)", (unsigned)tag);
    return text;
}

struct error *error_last(void)
{
    static _Thread_local struct error last = {.rank = RANK_NONE, .origin = RANK_NONE};
    return &last;
}

const char *hearth_error_text(void)
{
    static _Thread_local char text[ERROR_TEXT_MAX];
    error_show(error_last(), text);
    return text;
}

int hearth_error_rank(void)
{
    return error_last()->rank;
}

enum hearth_reason hearth_error_reason(void)
{
    return error_last()->reason;
}

enum hearth_fate hearth_error_fate(void)
{
    return error_last()->fate;
}

const char *hearth_fate_name(enum hearth_fate fate)
{
    static const char *const names[] = {
        [HEARTH_FATE_NONE] = "none",
        [HEARTH_FATE_NOT_DELIVERED] = "not_delivered",
        [HEARTH_FATE_DELIVERED] = "delivered",
        [HEARTH_FATE_UNKNOWN] = "unknown",
    };
    return (unsigned)fate < sizeof names / sizeof names[0] ? names[fate] : "?";
}

int error_call(const char *call, int status, const char *format, ...)
{
    struct error error;
    va_list args;
    va_start(args, format);
    error_vset(&error, status, RANK_NONE, format, args);
    va_end(args);
    return error_call_because(call, &error);
}

int error_call_because(const char *call, const struct error *error)
{
    return error_wrap(error_last(), error, "%s: %s", call, error->text);
}
