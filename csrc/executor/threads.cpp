#include "foreword/threads.h"

#include <algorithm>
#include <chrono>

namespace foreword {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpinsPerLook = 64;
constexpr auto kSpin = std::chrono::microseconds(30);    // phases follow each other within this
constexpr auto kLinger = std::chrono::microseconds(150);  // steps do; but here anybody else may have the core

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins, then yields, until `done` or until `limit` has passed; true if done.
template <typename Done>
bool spin_until(Done done, Clock::duration limit) {
  for (int i = 0; i < kSpinsPerLook; ++i) {
    if (done()) return true;
    pause();
  }
  const auto start = Clock::now();
  for (;;) {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (done()) return true;
      pause();
    }
    const auto elapsed = Clock::now() - start;
    if (elapsed >= limit) return done();
    if (elapsed >= kSpin) std::this_thread::yield();
  }
}

}  // namespace

ThreadPool::ThreadPool(unsigned threads) {
  try {
    for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker(i); });
  } catch (...) {
    close();
    throw;
  }
}

ThreadPool::~ThreadPool() { close(); }

void ThreadPool::close() {
  closing_ = true;
  ++epoch_;
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Job::work(unsigned thread) {
  for (;;) {
    const size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
    if (begin >= count) return;
    call(body, begin, std::min(begin + grain, count), thread);
  }
}

void ThreadPool::run_job(Job& job) {
  if (workers_.empty() || job.count <= job.grain) return job.work(0);
  job_ = &job;
  ++epoch_;
  epoch_.notify_all();
  job.work(0);
  // A worker announces itself (busy_) before it looks at job_, so after this store either it finds no job, or it is
  // seen here and waited for: the job, which lives on this stack, outlasts every look at it.
  job_ = nullptr;
  while (!spin_until([this] { return busy_ == 0; }, Clock::duration::max())) {
  }
}

void ThreadPool::worker(unsigned thread) {
  int seen = 0;
  while (wait_for_work(seen)) {
    seen = epoch_;
    ++busy_;
    if (Job* job = job_) job->work(thread);
    --busy_;
  }
}

bool ThreadPool::wait_for_work(int seen) {
  if (!spin_until([&] { return epoch_ != seen; }, kLinger) && !closing_) epoch_.wait(seen);
  return !closing_;
}

}  // namespace foreword
