/* SPDX-License-Identifier: Apache-2.0 */
/* One collective of a torch process group, and the crew that completes those that nobody waits for.
 *
 * A work flies from its start until the operation has ended, and then lands exactly once: results are copied
 * to where they belong, the request is freed, waiters and the future are told. It lands on the thread that
 * waits for it, which drives the operation itself and needs no other thread; else on a thread of the crew,
 * since Hearth's completion callback must not block, and what hangs on a torch future may. */
#pragma once

#include <hearth.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "torch_failure.h"
#include "torch_staging.h"

namespace hearth_torch
{

class Crew;

/* What a work is made of. */
struct Task {
    using Tensors = std::vector<at::Tensor>;

    /* The title has static storage, and begins with the backend's name: "hearth:all_reduce". */
    Task(const char *its_title, c10d::OpType its_type, Tensors its_inputs = {})
        : title(its_title), type(its_type), inputs(std::move(its_inputs))
    {
    }
    /* As errors call the operation. */
    const char *name() const;

    const char *title; /* as the profiler shows it */
    c10d::OpType type;
    Tensors inputs;              /* whose shapes the profiler shows */
    Span source, target;         /* in place: the target alone */
    std::function<void()> after; /* what is done with the target before the work has landed; may be empty */
    Tensors results;             /* for Work.result() and the future */
    std::vector<Tensors> lists;  /* for the future instead, if there are several */
    std::vector<size_t> counts, target_counts;
    bool collective = true;                           /* else a message */
    std::shared_ptr<struct hearth_received> received; /* of a receive; Hearth fills it in */
    SpanMemory memory;                                /* while it runs */
};

class HearthWork : public c10d::Work
{
  public:
    HearthWork(std::shared_ptr<Crew> crew, Task task, int rank);

    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    std::vector<at::Tensor> result() override;
    int sourceRank() const override; /* of a receive that has ended */
    int status() const;              /* of the operation; HEARTH_PENDING until the work has landed */

    Task &task()
    {
        return task_;
    }
    /* hearth_done_fn; the argument is the work, which the crew keeps until it has landed. */
    static void ended(void *work, int status);
    /* The operation has been started, and may have ended already. */
    void started(hearth_request *request);
    /* Lands it if it has ended and nobody else does; for the crew. */
    void land_if_ended();

  private:
    friend class Crew;
    enum class State { STARTING, FLYING, ENDED, LANDING };

    bool claim();
    void land();
    std::exception_ptr outcome();
    void drive(std::unique_lock<std::mutex> &lock, int64_t slice_ms);
    [[noreturn]] void give_up() const;
    void release(std::unique_lock<std::mutex> &lock);
    c10::TypePtr future_type() const;
    void tell_future();

    const std::shared_ptr<Crew> crew_;
    Task task_;
    std::list<c10::intrusive_ptr<HearthWork>>::iterator place_; /* among those in flight; the crew's */
    /* Under mutex_: */
    State state_ = State::STARTING;
    int status_ = HEARTH_PENDING;
    hearth_request *request_ = nullptr;
    int waiting_ = 0; /* threads that drive the operation: one of them lands it */
    int users_ = 0;   /* threads that hold the request: the last one frees it, if the work has landed */
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    bool told_ = false; /* the future */
};

/* Keeps the works in flight, and lands those that nobody waits for. Its threads are its own: they end when
 * the crew is stopped, whoever stops it. */
class Crew : public std::enable_shared_from_this<Crew>
{
  public:
    /* Ordered futures: as in process_group_hearth.h. */
    static std::shared_ptr<Crew> hire(bool ordered_futures);
    bool orders_futures() const
    {
        return ordered_futures_;
    }

    /* Keeps the work until it leaves. Refuses after stop, and in a forked child. */
    void enter(const c10::intrusive_ptr<HearthWork> &work);
    void leave(HearthWork &work);
    /* To be landed by a thread of the crew. Does not block. */
    void push(HearthWork *work);
    /* Before one of its threads runs what hangs on a future: others must be landed meanwhile. */
    void make_spare();
    /* Lets works in flight end by themselves for a short while, cancels the others, and ends the threads. */
    void stop();

  private:
    explicit Crew(bool ordered_futures);
    bool start_thread(); /* with the lock held */
    void run();
    void cancel_all(std::unique_lock<std::mutex> &lock);

    const int process_;
    const bool ordered_futures_;
    std::mutex mutex_;
    std::condition_variable ended_, changed_; /* something to land; fewer works or threads */
    std::list<c10::intrusive_ptr<HearthWork>> flying_;
    std::deque<c10::intrusive_ptr<HearthWork>> landing_; /* no longer than flying_ */
    int threads_ = 0, idle_ = 0;
    bool closed_ = false, stopped_ = false;
};

} // namespace hearth_torch
