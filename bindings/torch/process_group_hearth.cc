/* SPDX-License-Identifier: Apache-2.0 */
/* The process group: each collective checks its tensors, makes a task of them and starts the operation. Moves
 * are of bytes, so that they take every type of tensor; reductions are of Hearth's types. */
#include "process_group_hearth.h"

#include <unistd.h>

#include <algorithm>

namespace py = pybind11;

namespace hearth_torch
{

namespace
{

using Use = Span::Use;
using std::chrono::milliseconds;

/* Longer ones than a year are refused by Hearth. */
constexpr milliseconds TIMEOUT_MAX = std::chrono::hours(24 * 365);

std::vector<size_t> bytes_of(const std::vector<at::Tensor> &tensors)
{
    std::vector<size_t> bytes;
    for (const auto &tensor : tensors)
        bytes.push_back(tensor.nbytes());
    return bytes;
}

bool all_same(const std::vector<size_t> &counts)
{
    return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

size_t sum_before(const std::vector<size_t> &counts, int rank)
{
    size_t sum = 0;
    for (int i = 0; i < rank; i++)
        sum += counts[static_cast<size_t>(i)];
    return sum;
}

/* One's own part may stand in the whole where it belongs; any other overlap costs a copy. */
void separate(Span *source, const Span &target, const char *own_part, const char *place)
{
    if (own_part != place && source->overlaps(target))
        source->move_away();
}

[[noreturn]] void refuse_point_to_point(const char *name)
{
    refuse_unsupported(
        std::string(name) +
        ": Hearth has no point-to-point messages yet; use a collective (broadcast, all_to_all), or "
        "a second group: dist.new_group(backend=\"gloo\")");
}

} // namespace

/* ---- life ---- */

ProcessGroupHearth::ProcessGroupHearth(py::object owner, hearth_node *node, Settings settings)
    : ProcessGroup(hearth_rank(hearth_world(node)), hearth_size(hearth_world(node))), process_(getpid()),
      timeout_(settings.timeout), owner_(std::move(owner)), group_(hearth_world(node)),
      crew_(Crew::hire(settings.ordered_futures))
{
    init();
}

ProcessGroupHearth::~ProcessGroupHearth()
{
    if (!python_runs()) {
        owner_.release(); /* the interpreter ends, and takes it along */
        return;
    }
    try {
        shutdown();
    } catch (const std::exception &error) {
        TORCH_WARN("hearth: closing a process group: ", error.what());
    }
    py::gil_scoped_acquire gil;
    owner_ = py::object();
}

void ProcessGroupHearth::shutdown()
{
    if (getpid() != process_ || closed_.exchange(true))
        return;
    if (PyGILState_Check()) {
        py::gil_scoped_release open; /* what hangs on futures may be in Python */
        crew_->stop();
    } else {
        crew_->stop();
    }
    py::gil_scoped_acquire gil;
    owner_.attr("close")();
}

const std::string ProcessGroupHearth::getBackendName() const
{
    return "hearth";
}

/* ---- starting ---- */

ProcessGroupHearth::WorkPtr ProcessGroupHearth::launch(Task task, milliseconds timeout, const Start &start)
{
    auto work = c10::make_intrusive<HearthWork>(crew_, std::move(task), rank_);
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = std::min(timeout > kNoTimeout ? timeout : timeout_, TIMEOUT_MAX).count();
    opts.done = HearthWork::ended;
    opts.done_arg = work.get();
    crew_->enter(work);
    hearth_request *request = nullptr;
    int status = start(work->task(), &opts, &request);
    if (status != HEARTH_OK) {
        Failure failure = last_failure(status, rank_);
        crew_->leave(*work);
        raise(failure);
    }
    sequence_++;
    work->started(request);
    return work;
}

/* ---- checks ---- */

int ProcessGroupHearth::root(const char *name, int64_t rank) const
{
    if (rank < 0 || rank >= size_)
        refuse(std::string(name) + ": rank " + std::to_string(rank) + " is not in the group of " +
               std::to_string(size_));
    return static_cast<int>(rank);
}

void ProcessGroupHearth::check_one(const char *name, const Tensors &tensors) const
{
    if (tensors.size() != 1)
        refuse_unsupported(std::string(name) + ": Hearth takes one tensor of each process, not " +
                           std::to_string(tensors.size()));
    check_movable(name, tensors[0]);
}

/* A list with a tensor for each member, of which one's own is as long as `own`. */
void ProcessGroupHearth::check_list(const char *name, const std::vector<Tensors> &lists,
                                    const at::Tensor &own, bool same_size) const
{
    if (lists.size() != 1 || lists[0].size() != static_cast<size_t>(size_))
        refuse(std::string(name) + ": there must be one list with a tensor for each of the " +
               std::to_string(size_) + " members");
    check_alike(name, lists[0]);
    if (lists[0][0].scalar_type() != own.scalar_type())
        refuse(std::string(name) + ": the list has tensors of type " + toString(lists[0][0].scalar_type()) +
               ", the other tensor is of type " + toString(own.scalar_type()));
    for (size_t i = 0; i < lists[0].size(); i++) {
        bool must = same_size || i == static_cast<size_t>(rank_);
        if (must && lists[0][i].numel() != own.numel())
            refuse(std::string(name) + ": tensor " + std::to_string(i) + " of the list has " +
                   std::to_string(lists[0][i].numel()) + " elements, not " + std::to_string(own.numel()));
    }
}

/* How many bytes of the tensor belong to each member. */
std::vector<size_t> ProcessGroupHearth::split_bytes(const at::Tensor &tensor,
                                                    const std::vector<int64_t> &splits,
                                                    const char *what) const
{
    size_t members = static_cast<size_t>(size_);
    int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
    if (splits.empty()) {
        if (rows % size_ != 0)
            refuse("all_to_all: the " + std::to_string(rows) + " rows of the " + what +
                   " cannot be dealt to " + std::to_string(size_) + " members evenly");
        return std::vector<size_t>(members, tensor.nbytes() / members);
    }
    int64_t sum = 0;
    bool good = splits.size() == members;
    for (int64_t split : splits) {
        good = good && split >= 0;
        sum += split;
    }
    if (!good || sum != rows)
        refuse(std::string("all_to_all: the split sizes of the ") + what + " must be " +
               std::to_string(size_) + " numbers with the sum " + std::to_string(rows));
    std::vector<size_t> bytes;
    for (int64_t split : splits)
        bytes.push_back(rows > 0 ? tensor.nbytes() / static_cast<size_t>(rows) * static_cast<size_t>(split)
                                 : 0);
    return bytes;
}

/* ---- one buffer ---- */

ProcessGroupHearth::WorkPtr ProcessGroupHearth::broadcast(Tensors &tensors,
                                                          const c10d::BroadcastOptions &opts)
{
    check_one("broadcast", tensors);
    int from = root("broadcast", opts.rootRank);
    Task task("hearth:broadcast", c10d::OpType::BROADCAST);
    task.target = Span(tensors, from == rank_ ? Use::BOTH : Use::WRITE);
    task.results = tensors;
    return launch(
        std::move(task), opts.timeout, [=](const Task &t, const hearth_opts *o, hearth_request **r) {
            return hearth_broadcast_nb(group_, t.target.data(), t.target.bytes(), HEARTH_U8, from, o, r);
        });
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::launch_all_reduce(const char *name, c10d::OpType type,
                                                                  const Tensors &tensors,
                                                                  const c10d::AllreduceOptions &opts)
{
    Reduction reduction = reduction_of(name, tensors[0].scalar_type(), opts.reduceOp);
    Task task(name, type);
    task.target = Span(tensors, Use::BOTH);
    task.results = tensors;
    return launch(std::move(task), opts.timeout,
                  [=](const Task &t, const hearth_opts *o, hearth_request **r) {
                      return hearth_all_reduce_nb(group_, t.target.data(), t.target.data(),
                                                  reduction.count_of(t.target.bytes()), reduction.dtype,
                                                  reduction.op, o, r);
                  });
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::allreduce(Tensors &tensors,
                                                          const c10d::AllreduceOptions &opts)
{
    check_one("all_reduce", tensors);
    return launch_all_reduce("hearth:all_reduce", c10d::OpType::ALLREDUCE, tensors, opts);
}

ProcessGroupHearth::WorkPtr
ProcessGroupHearth::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts)
{
    if (tensors.empty())
        refuse("all_reduce_coalesced: there are no tensors");
    check_alike("all_reduce_coalesced", tensors);
    return launch_all_reduce("hearth:all_reduce_coalesced", c10d::OpType::ALLREDUCE_COALESCED, tensors, opts);
}

/* The other members' tensors stay as they are. */
ProcessGroupHearth::WorkPtr ProcessGroupHearth::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    check_one("reduce", tensors);
    int to = root("reduce", opts.rootRank);
    Reduction reduction = reduction_of("reduce", tensors[0].scalar_type(), opts.reduceOp);
    Task task("hearth:reduce", c10d::OpType::REDUCE);
    (to == rank_ ? task.target : task.source) = Span(tensors, Use::BOTH);
    task.results = tensors;
    return launch(
        std::move(task), opts.timeout, [=](const Task &t, const hearth_opts *o, hearth_request **r) {
            const Span &own = to == rank_ ? t.target : t.source;
            return hearth_reduce_nb(group_, own.data(), t.target.data(), reduction.count_of(own.bytes()),
                                    reduction.dtype, reduction.op, to, o, r);
        });
}

/* ---- from all, to all ---- */

/* With counts, members give differently much. */
ProcessGroupHearth::WorkPtr ProcessGroupHearth::launch_all_gather(Task task, milliseconds timeout)
{
    size_t offset = task.counts.empty() ? static_cast<size_t>(rank_) * task.source.bytes()
                                        : sum_before(task.counts, rank_);
    separate(&task.source, task.target, task.source.data(), task.target.data() + offset);
    return launch(std::move(task), timeout, [=](const Task &t, const hearth_opts *o, hearth_request **r) {
        if (t.counts.empty())
            return hearth_all_gather_nb(group_, t.source.data(), t.target.data(), t.source.bytes(), HEARTH_U8,
                                        o, r);
        return hearth_all_gatherv_nb(group_, t.source.data(), t.target.data(), t.counts.data(), HEARTH_U8, o,
                                     r);
    });
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                                          const c10d::AllgatherOptions &opts)
{
    check_one("all_gather", inputs);
    check_list("all_gather", outputs, inputs[0], false);
    Task task("hearth:all_gather", c10d::OpType::ALLGATHER);
    task.source = Span(inputs, Use::READ);
    task.target = Span(outputs[0], Use::WRITE);
    task.results = outputs[0];
    task.counts = bytes_of(outputs[0]);
    if (all_same(task.counts))
        task.counts.clear();
    return launch_all_gather(std::move(task), opts.timeout);
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                                const c10d::AllgatherOptions &opts)
{
    check_alike("all_gather_into_tensor", {output, input});
    if (output.numel() != input.numel() * size_)
        refuse("all_gather_into_tensor: the output has " + std::to_string(output.numel()) +
               " elements, not the input's " + std::to_string(input.numel()) + " for each of the " +
               std::to_string(size_) + " members");
    Task task("hearth:all_gather_into_tensor", c10d::OpType::_ALLGATHER_BASE);
    task.source = Span({input}, Use::READ);
    task.target = Span({output}, Use::WRITE);
    task.results = {output};
    return launch_all_gather(std::move(task), opts.timeout);
}

/* outputs[i] is what member i gave as inputs. */
ProcessGroupHearth::WorkPtr ProcessGroupHearth::allgather_coalesced(std::vector<Tensors> &outputs,
                                                                    Tensors &inputs,
                                                                    const c10d::AllgatherOptions &opts)
{
    static const char *const name = "all_gather_coalesced";
    Tensors all;
    bool good = outputs.size() == static_cast<size_t>(size_);
    for (const auto &list : outputs) {
        good = good && list.size() == inputs.size();
        for (size_t i = 0; good && i < list.size(); i++) {
            check_alike(name, {list[i], inputs[i]});
            good = list[i].numel() == inputs[i].numel();
        }
        all.insert(all.end(), list.begin(), list.end());
    }
    if (!good || inputs.empty())
        refuse(std::string(name) + ": there must be a list for each of the " + std::to_string(size_) +
               " members, with as many and as long tensors as the inputs");
    Task task("hearth:all_gather_coalesced", c10d::OpType::ALLGATHER_COALESCED);
    task.source = Span(inputs, Use::READ);
    task.target = Span(all, Use::WRITE);
    task.results = std::move(all);
    return launch_all_gather(std::move(task), opts.timeout);
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::launch_reduce_scatter(Task task, Reduction reduction,
                                                                      milliseconds timeout)
{
    size_t offset = task.counts.empty() ? static_cast<size_t>(rank_) * task.target.bytes()
                                        : sum_before(task.counts, rank_);
    separate(&task.source, task.target, task.target.data(), task.source.data() + offset);
    for (auto &count : task.counts)
        count = reduction.count_of(count);
    return launch(std::move(task), timeout, [=](const Task &t, const hearth_opts *o, hearth_request **r) {
        if (t.counts.empty())
            return hearth_reduce_scatter_nb(group_, t.source.data(), t.target.data(),
                                            reduction.count_of(t.target.bytes()), reduction.dtype,
                                            reduction.op, o, r);
        return hearth_reduce_scatterv_nb(group_, t.source.data(), t.target.data(), t.counts.data(),
                                         reduction.dtype, reduction.op, o, r);
    });
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                                               const c10d::ReduceScatterOptions &opts)
{
    check_one("reduce_scatter", outputs);
    check_list("reduce_scatter", inputs, outputs[0], false);
    Reduction reduction = reduction_of("reduce_scatter", outputs[0].scalar_type(), opts.reduceOp);
    Task task("hearth:reduce_scatter", c10d::OpType::REDUCE_SCATTER);
    task.source = Span(inputs[0], Use::READ);
    task.target = Span(outputs, Use::WRITE);
    task.results = outputs;
    task.counts = bytes_of(inputs[0]);
    if (all_same(task.counts))
        task.counts.clear();
    return launch_reduce_scatter(std::move(task), reduction, opts.timeout);
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                                     const c10d::ReduceScatterOptions &opts)
{
    check_alike("reduce_scatter_tensor", {output, input});
    if (input.numel() != output.numel() * size_)
        refuse("reduce_scatter_tensor: the input has " + std::to_string(input.numel()) +
               " elements, not the output's " + std::to_string(output.numel()) + " for each of the " +
               std::to_string(size_) + " members");
    Reduction reduction = reduction_of("reduce_scatter_tensor", output.scalar_type(), opts.reduceOp);
    Task task("hearth:reduce_scatter_tensor", c10d::OpType::_REDUCE_SCATTER_BASE);
    task.source = Span({input}, Use::READ);
    task.target = Span({output}, Use::WRITE);
    task.results = {output};
    return launch_reduce_scatter(std::move(task), reduction, opts.timeout);
}

/* Always by counts: one member may leave them out where another gives them. */
ProcessGroupHearth::WorkPtr ProcessGroupHearth::launch_all_to_all(Task task, milliseconds timeout)
{
    if (task.source.overlaps(task.target))
        task.source.move_away();
    return launch(std::move(task), timeout, [=](const Task &t, const hearth_opts *o, hearth_request **r) {
        return hearth_all_to_allv_nb(group_, t.source.data(), t.counts.data(), t.target.data(),
                                     t.target_counts.data(), HEARTH_U8, o, r);
    });
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::alltoall(Tensors &outputs, Tensors &inputs,
                                                         const c10d::AllToAllOptions &opts)
{
    if (outputs.size() != static_cast<size_t>(size_) || inputs.size() != outputs.size())
        refuse("all_to_all: both lists must have a tensor for each of the " + std::to_string(size_) +
               " members");
    check_alike("all_to_all", outputs);
    check_alike("all_to_all", inputs);
    check_alike("all_to_all", {outputs[0], inputs[0]});
    Task task("hearth:all_to_all", c10d::OpType::ALLTOALL);
    task.source = Span(inputs, Use::READ);
    task.target = Span(outputs, Use::WRITE);
    task.results = outputs;
    task.counts = bytes_of(inputs);
    task.target_counts = bytes_of(outputs);
    return launch_all_to_all(std::move(task), opts.timeout);
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::alltoall_base(at::Tensor &output, at::Tensor &input,
                                                              std::vector<int64_t> &output_splits,
                                                              std::vector<int64_t> &input_splits,
                                                              const c10d::AllToAllOptions &opts)
{
    check_alike("all_to_all", {output, input});
    Task task("hearth:all_to_all_single", c10d::OpType::ALLTOALL_BASE);
    task.counts = split_bytes(input, input_splits, "input");
    task.target_counts = split_bytes(output, output_splits, "output");
    task.source = Span({input}, Use::READ);
    task.target = Span({output}, Use::WRITE);
    task.results = {output};
    return launch_all_to_all(std::move(task), opts.timeout);
}

/* ---- to one, from one ---- */

ProcessGroupHearth::WorkPtr ProcessGroupHearth::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                                                       const c10d::GatherOptions &opts)
{
    check_one("gather", inputs);
    int to = root("gather", opts.rootRank);
    Task task("hearth:gather", c10d::OpType::GATHER);
    task.source = Span(inputs, Use::READ);
    if (to == rank_) {
        check_list("gather", outputs, inputs[0], true);
        task.target = Span(outputs[0], Use::WRITE);
        task.results = outputs[0];
        separate(&task.source, task.target, task.source.data(),
                 task.target.data() + static_cast<size_t>(rank_) * task.source.bytes());
    }
    return launch(std::move(task), opts.timeout,
                  [=](const Task &t, const hearth_opts *o, hearth_request **r) {
                      return hearth_gather_nb(group_, t.source.data(), t.target.data(), t.source.bytes(),
                                              HEARTH_U8, to, o, r);
                  });
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                                        const c10d::ScatterOptions &opts)
{
    check_one("scatter", outputs);
    int from = root("scatter", opts.rootRank);
    Task task("hearth:scatter", c10d::OpType::SCATTER);
    task.target = Span(outputs, Use::WRITE);
    task.results = outputs;
    if (from == rank_) {
        check_list("scatter", inputs, outputs[0], true);
        task.source = Span(inputs[0], Use::READ);
        separate(&task.source, task.target, task.target.data(),
                 task.source.data() + static_cast<size_t>(rank_) * task.target.bytes());
    }
    return launch(std::move(task), opts.timeout,
                  [=](const Task &t, const hearth_opts *o, hearth_request **r) {
                      return hearth_scatter_nb(group_, t.source.data(), t.target.data(), t.target.bytes(),
                                               HEARTH_U8, from, o, r);
                  });
}

/* ---- the rest ---- */

ProcessGroupHearth::WorkPtr ProcessGroupHearth::barrier(const c10d::BarrierOptions &opts)
{
    Task task("hearth:barrier", c10d::OpType::BARRIER);
    return launch(std::move(task), opts.timeout, [=](const Task &, const hearth_opts *o, hearth_request **r) {
        return hearth_barrier_nb(group_, o, r);
    });
}

/* Every barrier of Hearth names whom it waited for in vain. */
void ProcessGroupHearth::monitoredBarrier(const c10d::BarrierOptions &opts, bool)
{
    barrier(opts)->wait();
}

/* Each member counts what it has started; they agree if all have called the same. */
void ProcessGroupHearth::setSequenceNumberForGroup()
{
    sequence_ = 0;
}

uint64_t ProcessGroupHearth::getSequenceNumberForGroup()
{
    return sequence_;
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::send(Tensors &, int, int)
{
    refuse_point_to_point("send");
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::recv(Tensors &, int, int)
{
    refuse_point_to_point("recv");
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::recvAnysource(Tensors &, int)
{
    refuse_point_to_point("recv");
}

} // namespace hearth_torch
