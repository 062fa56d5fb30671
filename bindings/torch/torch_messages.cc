/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the process group: send, recv, and the monitored barrier, which is made of them.
 *
 * Torch's tags are the lower 31 bits of Hearth's. Monitored barriers have tags from MONITOR on: each member
 * reports to rank 0 with an empty message, and rank 0 answers with a byte for each member, 1 if it did not
 * come in time. Those that come later find their answer, too: nobody waits in vain, and the next barrier has
 * another tag. */
#include "process_group_hearth.h"

#include <algorithm>

#include "torch_checks.h"

namespace hearth_torch
{

namespace
{

using Use = Span::Use;
using std::chrono::milliseconds;

constexpr uint64_t MONITOR = 1ull << 62;
constexpr const char *MONITORED = "monitored_barrier";
/* Rank 0 may have come later than others: they give it this much more to answer. */
constexpr milliseconds ANSWER_MAX(1000);

/* False: its deadline has passed. Other errors are raised. */
bool ended_in_time(HearthWork &work)
{
    try {
        return work.wait();
    } catch (...) {
        if (work.status() != HEARTH_TIMEOUT)
            throw;
        return false;
    }
}

/* In the words of gloo. */
[[noreturn]] void raise_missing(const at::Tensor &missing, int rank, milliseconds timeout)
{
    std::string ranks;
    int first = -1, count = 0;
    for (int i = 0; i < missing.numel(); i++) {
        if (missing.data_ptr<uint8_t>()[i] == 0)
            continue;
        ranks += (count++ > 0 ? ", " : " ") + std::to_string(i);
        first = first < 0 ? i : first;
    }
    raise(Failure{HEARTH_TIMEOUT,
                  std::string(MONITORED) + ": timed out: " + (count == 1 ? "Rank" : "Ranks") + ranks +
                      " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms",
                  rank, first});
}

} // namespace

/* ---- send, recv ---- */

ProcessGroupHearth::HearthWorkPtr ProcessGroupHearth::launch_send(Task task, int to, uint64_t tag,
                                                                  milliseconds timeout)
{
    task.source = Span(task.inputs, Use::READ);
    task.collective = false;
    return launch(std::move(task), timeout, [=](const Task &t, const hearth_opts *o, hearth_request **r) {
        return hearth_send_nb(group_, to, tag, t.source.data(), t.source.bytes(), o, r);
    });
}

ProcessGroupHearth::HearthWorkPtr ProcessGroupHearth::launch_recv(Task task, int from, uint64_t tag,
                                                                  milliseconds timeout)
{
    task.target = Span(task.inputs, Use::WRITE);
    task.collective = false;
    task.received = std::make_shared<struct hearth_received>();
    task.received->size = sizeof(struct hearth_received);
    task.received->rank = -1;
    task.after = [received = task.received, expected = task.target.bytes(), own = rank_] {
        if (received->len != expected)
            raise(Failure{HEARTH_MISMATCH,
                          "recv: the message of rank " + std::to_string(received->rank) + " has " +
                              std::to_string(received->len) + " bytes, but the tensor has " +
                              std::to_string(expected),
                          own, received->rank});
    };
    return launch(std::move(task), timeout, [=](const Task &t, const hearth_opts *o, hearth_request **r) {
        return hearth_recv_nb(group_, from, tag, t.target.data(), t.target.bytes(), o, t.received.get(), r);
    });
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::send(Tensors &tensors, int rank, int tag)
{
    check_single("send", tensors, "");
    check_peer("send", rank, size_);
    Task task("hearth:send", c10d::OpType::SEND, tensors);
    task.results = tensors;
    return launch_send(std::move(task), rank, check_tag("send", tag), c10d::kUnsetTimeout);
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::recv(Tensors &tensors, int rank, int tag)
{
    check_single("recv", tensors, "");
    check_peer("recv", rank, size_);
    Task task("hearth:recv", c10d::OpType::RECV, tensors);
    task.results = tensors;
    return launch_recv(std::move(task), rank, check_tag("recv", tag), c10d::kUnsetTimeout);
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::recvAnysource(Tensors &tensors, int tag)
{
    check_single("recv", tensors, "");
    Task task("hearth:recv", c10d::OpType::RECVANYSOURCE, tensors);
    task.results = tensors;
    return launch_recv(std::move(task), HEARTH_ANY_RANK, check_tag("recv", tag), c10d::kUnsetTimeout);
}

/* ---- the monitored barrier ---- */

/* All members that did not come are named, whatever the second argument says: their deadlines pass together.
 * A lost member ends the wait at once. */
void ProcessGroupHearth::monitoredBarrier(const c10d::BarrierOptions &opts, bool)
{
    milliseconds timeout = timeout_of(opts.timeout);
    uint64_t tag = MONITOR + monitored_++;
    at::Tensor missing = at::zeros({size_}, at::kByte);
    auto *flags = missing.data_ptr<uint8_t>();
    Task task("hearth:monitored_barrier", c10d::OpType::BARRIER);
    Task answer("hearth:monitored_barrier", c10d::OpType::BARRIER, {missing});
    std::vector<HearthWorkPtr> works;
    if (rank_ != 0) {
        milliseconds patience = timeout_of(timeout + std::min(timeout, ANSWER_MAX));
        works.push_back(launch_send(task, 0, tag, patience));
        works.push_back(launch_recv(answer, 0, tag, patience));
        flags[0] = !ended_in_time(*works[0]) || !ended_in_time(*works[1]) ? 1 : flags[0];
    } else {
        for (int from = 1; from < size_; from++)
            works.push_back(launch_recv(task, from, tag, timeout));
        for (size_t i = 0; i < works.size(); i++)
            flags[i + 1] = !ended_in_time(*works[i]);
        works.clear();
        for (int to = 1; to < size_; to++)
            works.push_back(launch_send(answer, to, tag, ANSWER_MAX));
        for (const auto &work : works)
            (void)ended_in_time(*work); /* one that hangs gets its answer when it comes back */
    }
    if (missing.any().item<bool>())
        raise_missing(missing, rank_, timeout);
}

} // namespace hearth_torch
