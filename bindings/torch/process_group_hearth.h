/* SPDX-License-Identifier: Apache-2.0 */
/* A torch process group whose collectives are Hearth's: backend "hearth" of torch.distributed. */
#pragma once

#include <hearth.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include "torch_work.h"

namespace hearth_torch
{

/* Each process group is a node of its own, which it closes. Members call the same collectives in the same
 * order; messages between two of them are ordered by tag. */
class ProcessGroupHearth : public c10d::ProcessGroup
{
  public:
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using milliseconds = std::chrono::milliseconds;
    using Tensors = std::vector<at::Tensor>;

    struct Settings {
        std::chrono::milliseconds timeout; /* of operations that have none of their own */
        bool ordered_futures; /* asking for a work's future waits for the work: what hangs on it then runs in
                                 the order of the program, on all members alike. For hooks that start
                                 collectives from there, as PyTorch's PowerSGD does */
    };
    /* `owner` is the Python object that the node belongs to; the process group closes it. */
    ProcessGroupHearth(pybind11::object owner, hearth_node *node, Settings settings);
    ~ProcessGroupHearth() override;

    /* Ends what is in flight and closes the node; calls after it fail. For exits without
     * destroy_process_group. */
    void shutdown();

    const std::string getBackendName() const override;

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;

    void setSequenceNumberForGroup() override;
    uint64_t getSequenceNumberForGroup() override;

    WorkPtr send(Tensors &tensors, int rank, int tag) override;
    WorkPtr recv(Tensors &tensors, int rank, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;

  private:
    /* Calls hearth_*_nb with the options and the place for the request that it is given. */
    using Start = std::function<int(const Task &task, const hearth_opts *opts, hearth_request **request)>;

    using HearthWorkPtr = c10::intrusive_ptr<HearthWork>;

    HearthWorkPtr launch(Task task, std::chrono::milliseconds timeout, const Start &start);
    milliseconds timeout_of(milliseconds timeout) const;
    /* What they move are the inputs of the task. */
    HearthWorkPtr launch_send(Task task, int to, uint64_t tag, milliseconds timeout);
    HearthWorkPtr launch_recv(Task task, int from, uint64_t tag, milliseconds timeout);
    WorkPtr launch_all_gather(Task task, std::chrono::milliseconds timeout);
    WorkPtr launch_reduce_scatter(Task task, Reduction reduction, std::chrono::milliseconds timeout);
    WorkPtr launch_all_to_all(Task task, std::chrono::milliseconds timeout);
    WorkPtr launch_all_reduce(Task task, Reduction reduction, std::chrono::milliseconds timeout);
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts);

    const int process_;
    const std::chrono::milliseconds timeout_;
    pybind11::object owner_;
    hearth_group *const group_;
    const std::shared_ptr<Crew> crew_;
    std::atomic<uint64_t> sequence_{0};
    std::atomic<uint64_t> monitored_{0}; /* monitored barriers so far: they have tags of their own */
    std::atomic<bool> closed_{false};
};

} // namespace hearth_torch
