/* SPDX-License-Identifier: Apache-2.0 */
/* The crew: works in flight, and the threads that land those that nobody waits for. */
#include <signal.h>
#include <unistd.h>

#include <system_error>
#include <thread>

#include "torch_work.h"

namespace hearth_torch
{

namespace
{

/* What hangs on a future may wait for further works, so that a thread with one has a spare behind it. */
constexpr int THREADS_MAX = 16;
/* Works that nobody waits for usually end at once when all members stop. */
constexpr auto LINGER = std::chrono::seconds(2);
/* Cancelled works and idle threads end at once; only what hangs on a future can take longer. */
constexpr auto PATIENCE = std::chrono::seconds(10);

thread_local const void *crew_of_thread = nullptr;

} // namespace

std::shared_ptr<Crew> Crew::hire(bool ordered_futures)
{
    std::shared_ptr<Crew> crew(new Crew(ordered_futures));
    std::lock_guard<std::mutex> lock(crew->mutex_);
    if (!crew->start_thread())
        raise(Failure{HEARTH_SYSTEM, "the system gives no thread to complete operations with"});
    return crew;
}

Crew::Crew(bool ordered_futures) : process_(getpid()), ordered_futures_(ordered_futures)
{
}

/* Signals are left to the program's own threads. False: the system gives no thread. */
bool Crew::start_thread()
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
        std::thread([self = shared_from_this()] { self->run(); }).detach();
        threads_++;
    } catch (const std::system_error &) {
        started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

void Crew::enter(const c10::intrusive_ptr<HearthWork> &work)
{
    if (getpid() != process_)
        raise(Failure{HEARTH_FORKED,
                      std::string(work->task().name()) + ": " + hearth_status_text(HEARTH_FORKED)});
    std::unique_lock<std::mutex> lock(mutex_);
    if (closed_) {
        lock.unlock();
        raise(Failure{HEARTH_CLOSED, std::string(work->task().name()) + ": the process group is closed"});
    }
    work->place_ = flying_.insert(flying_.end(), work);
}

void Crew::leave(HearthWork &work)
{
    c10::intrusive_ptr<HearthWork> last; /* dies without the lock */
    std::lock_guard<std::mutex> lock(mutex_);
    last = std::move(*work.place_);
    flying_.erase(work.place_);
    if (closed_)
        changed_.notify_all();
}

void Crew::push(HearthWork *work)
{
    std::lock_guard<std::mutex> lock(mutex_);
    landing_.push_back(c10::intrusive_ptr<HearthWork>::reclaim_copy(work));
    ended_.notify_one();
}

void Crew::run()
{
    crew_of_thread = this;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopped_ || !landing_.empty()) {
        if (landing_.empty()) {
            idle_++;
            ended_.wait(lock);
            idle_--;
            continue;
        }
        auto work = std::move(landing_.front());
        landing_.pop_front();
        lock.unlock();
        work->land_if_ended();
        work.reset();
        lock.lock();
    }
    threads_--;
    changed_.notify_all();
}

void Crew::make_spare()
{
    if (crew_of_thread != this)
        return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_ == 0 && threads_ < THREADS_MAX)
        (void)start_thread(); /* without a spare only works that wait for works are in danger */
}

void Crew::cancel_all(std::unique_lock<std::mutex> &lock)
{
    std::vector<c10::intrusive_ptr<HearthWork>> works(flying_.begin(), flying_.end());
    lock.unlock();
    for (const auto &work : works)
        work->abort();
    lock.lock();
}

void Crew::stop()
{
    if (getpid() != process_)
        return;
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    auto landed = [this] { return flying_.empty(); };
    if (!changed_.wait_for(lock, LINGER, landed)) {
        cancel_all(lock);
        changed_.wait_for(lock, PATIENCE, landed);
    }
    stopped_ = true;
    ended_.notify_all();
    int own = crew_of_thread == this ? 1 : 0;
    changed_.wait_for(lock, PATIENCE, [&] { return threads_ <= own; });
}

} // namespace hearth_torch
