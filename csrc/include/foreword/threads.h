// A small pool of threads for the phases of a forward pass.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace foreword {

// The calling thread works too: a pool of n has n - 1 workers. Workers spin briefly after a phase, since the next one
// follows within microseconds, then sleep: an idle pool burns nothing.
//
// The caller never waits for a worker that has not started: where the system gives a worker no core, the caller does
// all the work itself. One thread at a time may call `run`.
class ThreadPool {
 public:
  // Throws std::system_error where the system will not start that many.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned size() const { return static_cast<unsigned>(workers_.size()) + 1; }

  // Calls body(begin, end, thread) on runs of up to `grain` of `count` items, and returns when all are done. `thread` is
  // less than size(), and no two calls at a time have the same. `body` must not throw.
  //
  // Each thread has an equal share of neighbouring items, which it takes in their order, since memory is read fastest
  // in long runs; one that is done with its share takes from the ends of the others'.
  template <typename Body>
  void run(size_t count, size_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_job({[](void* b, size_t begin, size_t end, unsigned thread) { (*static_cast<Plain*>(b))(begin, end, thread); },
             const_cast<void*>(static_cast<const void*>(&body)), count, grain});
  }

  // Calls body(stage, part, thread) for every part of every stage: once the stage before is done for this part and for
  // all parts before it. Threads take them in order, so whoever waits waits for what another thread is at.
  template <typename Body>
  void run_stages(size_t stages, size_t parts, Body&& body) {
    std::atomic<size_t> next{0};
    std::vector<std::atomic<size_t>> done(parts);  // stages of each part
    run(size(), 1, [&](size_t, size_t, unsigned thread) {
      for (size_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < stages * parts;) {
        const size_t stage = item / parts, part = item % parts;
        for (size_t before = 0; before <= part; ++before) wait_for(done[before], stage);
        body(stage, part, thread);
        done[part].store(stage + 1, std::memory_order_release);
      }
    });
  }

 private:
  struct Job {
    void (*call)(void* body, size_t begin, size_t end, unsigned thread);
    void* body;
    size_t count, grain;
  };

  // Runs of items that a thread has yet to take: from `bounds >> 32` to its low half. One word, so that none is taken
  // twice, and a cache line of its own.
  struct alignas(64) Share {
    std::atomic<uint64_t> bounds{0};

    // The next run, or the last one; false where none is left.
    bool take_first(size_t& run);
    bool take_last(size_t& run);
  };

  // Returns once `value`, which another thread raises, is at least `least`: spins, then lets others have the core.
  static void wait_for(const std::atomic<size_t>& value, size_t least);
  void run_job(const Job& job);
  void work(const Job& job, unsigned thread);
  void close();
  void worker(unsigned thread);
  bool wait_for_work(int seen);  // false: the pool is closing

  alignas(64) std::atomic<const Job*> job_{nullptr};
  alignas(64) std::atomic<int> epoch_{0};  // counts jobs; workers sleep on it
  alignas(64) std::atomic<int> busy_{0};   // workers that may be looking at a job
  std::atomic<bool> closing_{false};
  std::vector<Share> shares_;  // one for each thread
  std::vector<std::thread> workers_;
};

// Who does the items of a phase: all of a pool's threads together, or one of them, alone and in order, inside a job that
// gave each thread work of its own.
class Crew {
 public:
  explicit Crew(ThreadPool& all) : all_(&all) {}
  explicit Crew(unsigned alone) : alone_(alone) {}

  // As ThreadPool::run.
  template <typename Body>
  void run(size_t count, size_t grain, Body&& body) const {
    if (all_) return all_->run(count, grain, body);
    for (size_t begin = 0; begin < count; begin += grain) body(begin, std::min(begin + grain, count), alone_);
  }

 private:
  ThreadPool* all_ = nullptr;
  unsigned alone_ = 0;
};

}  // namespace foreword
