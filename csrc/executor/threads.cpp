#include "foreword/threads.h"

#include <algorithm>
#include <chrono>

namespace foreword {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpinsPerLook = 64;
constexpr auto kSpin = std::chrono::microseconds(30);    // phases follow each other within this
constexpr auto kLinger = std::chrono::microseconds(150);  // steps do; but here anybody else may have the core

constexpr uint64_t kEnd = 0xffffffff;  // of a share's bounds

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

ThreadPool::ThreadPool(unsigned threads) : shares_(threads) {
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

bool ThreadPool::Share::take_first(size_t& run) {
  uint64_t now = bounds.load(std::memory_order_relaxed);
  do {
    run = now >> 32;
    if (run >= (now & kEnd)) return false;
  } while (!bounds.compare_exchange_weak(now, now + (uint64_t{1} << 32), std::memory_order_relaxed));
  return true;
}

bool ThreadPool::Share::take_last(size_t& run) {
  uint64_t now = bounds.load(std::memory_order_relaxed);
  do {
    if (now >> 32 >= (now & kEnd)) return false;
    run = (now & kEnd) - 1;
  } while (!bounds.compare_exchange_weak(now, now - 1, std::memory_order_relaxed));
  return true;
}

void ThreadPool::work(const Job& job, unsigned thread) {
  const auto call = [&](size_t run) {
    job.call(job.body, run * job.grain, std::min((run + 1) * job.grain, job.count), thread);
  };
  size_t run;
  while (shares_[thread].take_first(run)) call(run);
  for (unsigned i = 1; i < size(); ++i) {
    while (shares_[(thread + i) % size()].take_last(run)) call(run);
  }
}

void ThreadPool::wait_for(const std::atomic<size_t>& value, size_t least) {
  while (!spin_until([&] { return value.load(std::memory_order_acquire) >= least; }, Clock::duration::max())) {
  }
}

void ThreadPool::run_job(const Job& job) {
  if (workers_.empty() || job.count <= job.grain) {
    for (size_t begin = 0; begin < job.count; begin += job.grain) {
      job.call(job.body, begin, std::min(begin + job.grain, job.count), 0);
    }
    return;
  }
  const size_t runs = (job.count + job.grain - 1) / job.grain;
  for (unsigned i = 0; i < size(); ++i) {
    shares_[i].bounds.store(uint64_t{runs * i / size()} << 32 | runs * (i + 1) / size(), std::memory_order_relaxed);
  }
  job_ = &job;
  ++epoch_;
  epoch_.notify_all();
  work(job, 0);
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
    if (const Job* job = job_) work(*job, thread);
    --busy_;
  }
}

bool ThreadPool::wait_for_work(int seen) {
  if (!spin_until([&] { return epoch_ != seen; }, kLinger) && !closing_) epoch_.wait(seen);
  return !closing_;
}

}  // namespace foreword
