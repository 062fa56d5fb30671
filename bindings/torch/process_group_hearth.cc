/* SPDX-License-Identifier: Apache-2.0 */
/* The process group: each collective checks its tensors, makes a task of them and starts the operation. Moves
 * are of bytes, so that they take every type of tensor; reductions are of Hearth's types. */
#include "process_group_hearth.h"

#include <unistd.h>

#include <algorithm>

#include "torch_checks.h"
#include "torch_sparse.h"

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

/* Gives all tensors what one of them, or another, holds. */
std::function<void()> copies(const at::Tensor &from, const std::vector<at::Tensor> &to)
{
    if (to.size() == 1)
        return nullptr;
    return [=] {
        for (at::Tensor tensor : to) {
            if (!tensor.is_same(from))
                tensor.copy_(from);
        }
    };
}

std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>> &lists)
{
    std::vector<at::Tensor> all;
    for (const auto &list : lists)
        all.insert(all.end(), list.begin(), list.end());
    return all;
}

} // namespace

/* ---- life ---- */

ProcessGroupHearth::ProcessGroupHearth(py::object owner, hearth_node *node, Settings settings)
    : ProcessGroup(hearth_group_rank(hearth_node_world(node)), hearth_group_size(hearth_node_world(node))),
      process_(getpid()), timeout_(settings.timeout), owner_(std::move(owner)),
      group_(hearth_node_world(node)), crew_(Crew::hire(settings.ordered_futures))
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

milliseconds ProcessGroupHearth::timeout_of(milliseconds timeout) const
{
    milliseconds asked = timeout >= milliseconds(0) ? timeout : timeout_; /* kUnsetTimeout is negative */
    return std::min(asked, TIMEOUT_MAX);
}

ProcessGroupHearth::HearthWorkPtr ProcessGroupHearth::launch(Task task, milliseconds timeout,
                                                             const Start &start)
{
    auto work = c10::make_intrusive<HearthWork>(crew_, std::move(task), rank_);
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = timeout_of(timeout).count();
    opts.done = HearthWork::ended;
    opts.done_arg = work.get();
    opts.memory = work->task().memory.of(work->task().source, work->task().target);
    crew_->enter(work);
    hearth_request *request = nullptr;
    int status = start(work->task(), &opts, &request);
    if (status != HEARTH_OK) {
        Failure failure = last_failure(status, rank_);
        crew_->leave(*work);
        raise(failure);
    }
    if (work->task().collective)
        sequence_++;
    work->started(request);
    return work;
}

/* ---- one buffer ---- */

/* Of several tensors one is sent, and all others are copies of it. */
ProcessGroupHearth::WorkPtr ProcessGroupHearth::broadcast(Tensors &tensors,
                                                          const c10d::BroadcastOptions &opts)
{
    static const char *const name = "broadcast";
    int from = check_root(name, opts.rootRank, size_);
    if (opts.rootTensor < 0 || opts.rootTensor >= static_cast<int64_t>(tensors.size()))
        refuse(std::string(name) + ": invalid root tensor: " + std::to_string(opts.rootTensor));
    check_alike(name, tensors);
    at::Tensor sent = tensors[static_cast<size_t>(opts.rootTensor)];
    Task task("hearth:broadcast", c10d::OpType::BROADCAST, tensors);
    task.target = Span({sent}, from == rank_ ? Use::BOTH : Use::WRITE);
    task.after = copies(sent, tensors);
    task.results = tensors;
    return launch(
        std::move(task), opts.timeout, [=](const Task &t, const hearth_opts *o, hearth_request **r) {
            return hearth_broadcast_nb(group_, t.target.data(), t.target.bytes(), HEARTH_U8, from, o, r);
        });
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::launch_all_reduce(Task task, Reduction reduction,
                                                                  milliseconds timeout)
{
    return launch(std::move(task), timeout, [=](const Task &t, const hearth_opts *o, hearth_request **r) {
        return hearth_all_reduce_nb(group_, t.target.data(), t.target.data(),
                                    reduction.count_of(t.target.bytes()), reduction.dtype, reduction.op, o,
                                    r);
    });
}

/* Several tensors are as many contributions, and all of them get the result. */
ProcessGroupHearth::WorkPtr ProcessGroupHearth::allreduce(Tensors &tensors,
                                                          const c10d::AllreduceOptions &opts)
{
    static const char *const name = "all_reduce";
    if (!tensors.empty() && tensors[0].layout() == at::kSparse)
        return allreduce_sparse(tensors, opts);
    check_alike(name, tensors);
    Reduction reduction = reduction_of(name, tensors[0].scalar_type(), opts.reduceOp);
    Task task("hearth:all_reduce", c10d::OpType::ALLREDUCE, tensors);
    at::Tensor one = tensors.size() == 1 ? tensors[0] : reduce_here(name, tensors, opts.reduceOp);
    task.target = Span({one}, Use::BOTH);
    task.after = copies(one, tensors);
    task.results = tensors;
    return launch_all_reduce(std::move(task), reduction, opts.timeout);
}

ProcessGroupHearth::WorkPtr
ProcessGroupHearth::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts)
{
    static const char *const name = "all_reduce_coalesced";
    check_coalesced(name, tensors);
    Reduction reduction = reduction_of(name, tensors[0].scalar_type(), opts.reduceOp);
    Task task("hearth:all_reduce", c10d::OpType::ALLREDUCE_COALESCED, tensors);
    task.target = Span(tensors, Use::BOTH);
    task.results = tensors;
    return launch_all_reduce(std::move(task), reduction, opts.timeout);
}

/* How much each member gives is known before this returns; only the entries themselves travel behind it. */
ProcessGroupHearth::WorkPtr ProcessGroupHearth::allreduce_sparse(Tensors &tensors,
                                                                 const c10d::AllreduceOptions &opts)
{
    static const char *const name = "all_reduce";
    check_alike_sparse(name, tensors);
    if (opts.reduceOp.op_ != c10d::ReduceOp::SUM)
        refuse_unsupported(std::string(name) + ": unsupported reduction operation (allreduce of sparse "
                                               "tensors only works with ReduceOp.SUM)");
    auto sparse = std::make_shared<SparseSum>(name, tensors);
    at::Tensor shapes = at::empty({size_ * sparse->shape().numel()}, at::kLong);
    Task ask("hearth:sparse_shapes", c10d::OpType::ALLGATHER);
    ask.source = Span({sparse->shape()}, Use::READ);
    ask.target = Span({shapes}, Use::WRITE);
    launch_all_gather(std::move(ask), opts.timeout)->wait();
    sparse->meet(shapes);

    Task task("hearth:sparse_all_reduce", c10d::OpType::ALLREDUCE, tensors);
    task.counts = sparse->counts();
    at::Tensor all = at::empty({static_cast<int64_t>(sum_before(task.counts, size_))}, at::kByte);
    task.source = Span({sparse->pack(rank_)}, Use::READ);
    task.target = Span({all}, Use::WRITE);
    task.after = [=] {
        at::Tensor sum = sparse->unpack(all);
        for (at::Tensor tensor : tensors)
            tensor.copy_(sum);
    };
    task.results = tensors;
    return launch_all_gather(std::move(task), opts.timeout);
}

/* The other members' tensors stay as they are. */
ProcessGroupHearth::WorkPtr ProcessGroupHearth::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    static const char *const name = "reduce";
    int to = check_root(name, opts.rootRank, size_);
    if (opts.rootTensor < 0 || opts.rootTensor >= static_cast<int64_t>(tensors.size()))
        refuse(std::string(name) + ": invalid root tensor: " + std::to_string(opts.rootTensor));
    check_single(name, tensors, "");
    Reduction reduction = reduction_of(name, tensors[0].scalar_type(), opts.reduceOp);
    Task task("hearth:reduce", c10d::OpType::REDUCE, tensors);
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
    check_gathered("all_gather", outputs, inputs, rank_, size_);
    Task task("hearth:all_gather", c10d::OpType::ALLGATHER, inputs);
    task.source = Span(inputs, Use::READ);
    task.target = Span(outputs[0], Use::WRITE);
    task.after = [=] { /* each of several inputs has its list, and all lists are the same */
                       for (size_t i = 1; i < outputs.size(); i++)
                           for (size_t k = 0; k < outputs[i].size(); k++)
                               at::Tensor(outputs[i][k]).copy_(outputs[0][k]);
    };
    task.results = joined(outputs);
    task.lists = outputs;
    task.counts = bytes_of(outputs[0]);
    if (all_same(task.counts))
        task.counts.clear();
    return launch_all_gather(std::move(task), opts.timeout);
}

ProcessGroupHearth::WorkPtr ProcessGroupHearth::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                                const c10d::AllgatherOptions &opts)
{
    check_whole("all_gather_into_tensor", output, input, size_, "output", "input");
    Task task("hearth:all_gather_into_tensor", c10d::OpType::_ALLGATHER_BASE, {input});
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
    check_gathered_coalesced("all_gather_coalesced", outputs, inputs, size_);
    Tensors all = joined(outputs);
    Task task("hearth:all_gather", c10d::OpType::ALLGATHER_COALESCED, inputs);
    task.source = Span(inputs, Use::READ);
    task.target = Span(all, Use::WRITE);
    task.results = std::move(all);
    task.lists = outputs;
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
    static const char *const name = "reduce_scatter";
    check_single(name, outputs, "output ");
    check_scattered(name, inputs, outputs[0], rank_, size_);
    Reduction reduction = reduction_of(name, outputs[0].scalar_type(), opts.reduceOp);
    Task task("hearth:reduce_scatter", c10d::OpType::REDUCE_SCATTER, inputs[0]);
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
    static const char *const name = "reduce_scatter_tensor";
    check_whole(name, input, output, size_, "input", "output");
    Reduction reduction = reduction_of(name, output.scalar_type(), opts.reduceOp);
    Task task("hearth:reduce_scatter_tensor", c10d::OpType::_REDUCE_SCATTER_BASE, {input});
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
    static const char *const name = "all_to_all";
    if (outputs.size() != static_cast<size_t>(size_) || inputs.size() != outputs.size())
        refuse(std::string(name) + ": both lists must have a tensor for each of the " +
               std::to_string(size_) + " members");
    Tensors all = outputs;
    all.insert(all.end(), inputs.begin(), inputs.end());
    check_coalesced(name, all);
    Task task("hearth:all_to_all", c10d::OpType::ALLTOALL, inputs);
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
    static const char *const name = "all_to_all_single";
    check_coalesced(name, {output, input});
    Task task("hearth:all_to_all", c10d::OpType::ALLTOALL_BASE, {input});
    task.counts = split_bytes(name, input, input_splits, size_, "input");
    task.target_counts = split_bytes(name, output, output_splits, size_, "output");
    task.source = Span({input}, Use::READ);
    task.target = Span({output}, Use::WRITE);
    task.results = {output};
    return launch_all_to_all(std::move(task), opts.timeout);
}

/* ---- to one, from one ---- */

ProcessGroupHearth::WorkPtr ProcessGroupHearth::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                                                       const c10d::GatherOptions &opts)
{
    static const char *const name = "gather";
    int to = check_root(name, opts.rootRank, size_);
    check_single(name, inputs, "input ");
    Task task("hearth:gather", c10d::OpType::GATHER, inputs);
    task.source = Span(inputs, Use::READ);
    if (to != rank_) {
        check_no_list(name, outputs, "output");
    } else {
        check_root_list(name, outputs, inputs[0], size_, "output");
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
    static const char *const name = "scatter";
    int from = check_root(name, opts.rootRank, size_);
    check_single(name, outputs, "output ");
    if (from == rank_)
        check_root_list(name, inputs, outputs[0], size_, "input");
    else
        check_no_list(name, inputs, "input");
    Task task("hearth:scatter", c10d::OpType::SCATTER, from == rank_ ? inputs[0] : Tensors());
    task.target = Span(outputs, Use::WRITE);
    task.results = outputs;
    if (from == rank_) {
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

/* Each member counts the collectives that it has started; they agree if all have called the same. */
void ProcessGroupHearth::setSequenceNumberForGroup()
{
    sequence_ = 0;
}

uint64_t ProcessGroupHearth::getSequenceNumberForGroup()
{
    return sequence_;
}

} // namespace hearth_torch
