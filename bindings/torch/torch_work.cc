/* SPDX-License-Identifier: Apache-2.0 */
/* Works: waiting, landing, futures. */
#include "torch_work.h"

#include <algorithm>
#include <cstring>

#include <ATen/core/ivalue.h>

namespace hearth_torch
{

namespace
{

using Clock = std::chrono::steady_clock;

/* How long a wait lasts before it looks whether the user has pressed Ctrl-C. */
constexpr int64_t SLICE_MS = 100;

std::vector<c10::Device> devices_of(const std::vector<at::Tensor> &tensors)
{
    std::vector<c10::Device> devices;
    for (const auto &tensor : tensors) {
        if (tensor.is_cuda() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
            devices.push_back(tensor.device());
    }
    return devices;
}

} // namespace

const char *Task::name() const
{
    const char *colon = strchr(title, ':');
    return colon != nullptr ? colon + 1 : title;
}

HearthWork::HearthWork(std::shared_ptr<Crew> crew, Task task, int rank)
    : Work(rank, task.type, task.title, task.inputs), crew_(std::move(crew)), task_(std::move(task))
{
}

/* ---- the end of the operation ---- */

void HearthWork::ended(void *arg, int)
{
    auto *work = static_cast<HearthWork *>(arg);
    {
        std::lock_guard<std::mutex> lock(work->mutex_);
        bool awaited = work->state_ == State::STARTING || work->waiting_ > 0;
        work->state_ = State::ENDED;
        if (awaited)
            return;
    }
    /* It stays valid: whoever lands it waits until this callback has returned. */
    work->crew_->push(work);
}

void HearthWork::started(hearth_request *request)
{
    bool mine = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        request_ = request;
        if (state_ == State::STARTING)
            state_ = State::FLYING;
        else
            mine = claim();
    }
    if (mine)
        land();
}

void HearthWork::land_if_ended()
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!claim())
            return;
    }
    land();
}

/* With the lock held. True: the caller lands it. */
bool HearthWork::claim()
{
    if (state_ != State::ENDED)
        return false;
    state_ = State::LANDING;
    users_++;
    return true;
}

void HearthWork::land()
{
    auto self = c10::intrusive_ptr<HearthWork>::reclaim_copy(this); /* leaving may take the last other one */
    std::exception_ptr exception = outcome();
    {
        std::unique_lock<std::mutex> lock(mutex_);
        release(lock);
    }
    crew_->leave(*this);
    finish(exception);
    tell_future();
}

/* Copies results to where they belong. NULL: all is well. */
std::exception_ptr HearthWork::outcome()
{
    int status = hearth_request_wait(request_, -1); /* until the callback has returned */
    {
        std::lock_guard<std::mutex> lock(mutex_);
        status_ = status;
    }
    try {
        if (status == HEARTH_COPY_FAILED && task_.memory.failure())
            return task_.memory.failure();
        if (status != HEARTH_OK)
            return make_exception(Failure{status, hearth_request_error(request_), rank_,
                                          hearth_request_error_rank(request_),
                                          hearth_request_error_reason(request_)});
        at::NoGradGuard no_grad; /* results are written into leaves too */
        task_.target.deliver();
        if (task_.after)
            task_.after();
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

/* One user of the request less; with the lock held. A waiter may still be in it when the work lands. */
void HearthWork::release(std::unique_lock<std::mutex> &lock)
{
    hearth_request *request = nullptr;
    if (--users_ == 0 && state_ == State::LANDING)
        std::swap(request, request_);
    lock.unlock();
    hearth_request_close(request);
    lock.lock();
}

/* ---- waiting ---- */

bool HearthWork::wait(std::chrono::milliseconds timeout)
{
    auto deadline = Clock::time_point::max();
    if (timeout > kNoTimeout && timeout < std::chrono::hours(24 * 365))
        deadline = Clock::now() + timeout;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!completed_) {
        auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        if (claim()) {
            lock.unlock();
            land();
        } else if (left <= 0) {
            lock.unlock();
            give_up();
        } else if (state_ == State::LANDING) {
            cv_.wait_for(lock, std::chrono::milliseconds(SLICE_MS));
        } else {
            drive(lock, std::min<int64_t>(left, SLICE_MS));
        }
        if (!lock.owns_lock())
            lock.lock();
    }
    lock.unlock();
    if (exception_)
        std::rethrow_exception(exception_);
    return true;
}

void HearthWork::give_up() const
{
    raise(Failure{HEARTH_TIMEOUT,
                  std::string(task_.name()) + ": timed out: rank " + std::to_string(rank_) +
                      " has waited as long as the timeout of this wait; the operation goes on",
                  rank_});
}

/* Moves the operation on for a while. It has its own deadline, so that a wait ends in any case. No exception
 * is made with the lock held: that takes the GIL, whose holder may want the lock. */
void HearthWork::drive(std::unique_lock<std::mutex> &lock, int64_t slice_ms)
{
    waiting_++;
    users_++;
    lock.unlock();
    int status = hearth_request_wait(request_, slice_ms);
    std::exception_ptr interrupt = status == HEARTH_PENDING ? interruption() : nullptr;
    lock.lock();
    waiting_--;
    release(lock);
    lock.unlock();
    if (interrupt) {
        abort(); /* the others are told at once */
        land_if_ended();
        std::rethrow_exception(interrupt);
    }
    if (status == HEARTH_FORKED)
        raise(Failure{status, std::string(task_.name()) + ": " + hearth_status_text(status), rank_});
}

void HearthWork::abort()
{
    std::unique_lock<std::mutex> lock(mutex_);
    if (request_ == nullptr || state_ != State::FLYING)
        return;
    users_++;
    lock.unlock();
    hearth_request_cancel(request_);
    lock.lock();
    release(lock);
}

/* ---- results ---- */

std::vector<at::Tensor> HearthWork::result()
{
    return task_.results;
}

int HearthWork::status() const
{
    std::lock_guard<std::mutex> lock(mutex_);
    return status_;
}

int HearthWork::sourceRank() const
{
    return task_.received ? task_.received->rank : -1;
}

c10::TypePtr HearthWork::future_type() const
{
    c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
    return task_.lists.size() > 1 ? c10::ListType::create(list) : list;
}

c10::intrusive_ptr<c10::ivalue::Future> HearthWork::getFuture()
{
    bool completed;
    if (crew_->orders_futures())
        wait();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!future_)
            future_ = c10::make_intrusive<c10::ivalue::Future>(future_type(), devices_of(task_.results));
        completed = completed_;
    }
    if (completed)
        tell_future();
    return future_;
}

/* Runs what hangs on the future, so nothing is locked meanwhile. */
void HearthWork::tell_future()
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!future_ || told_)
            return;
        told_ = true;
    }
    crew_->make_spare();
    if (exception_)
        future_->setError(exception_);
    else
        future_->markCompleted(task_.lists.size() > 1 ? c10::IValue(task_.lists)
                                                      : c10::IValue(task_.results));
}

} // namespace hearth_torch
