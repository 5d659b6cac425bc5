// The thread pool under ThreadSanitizer (`make sanitize`): every item once, and nothing seen half done.
#include "foreword/threads.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "thread_pool_test: %s\n", what);
  std::exit(1);
}

// Plain memory, written in one job and read in the next: a race here is a missing barrier.
void run_jobs(foreword::ThreadPool& pool, size_t count, size_t grain, int jobs) {
  std::vector<int> items(count), next(count);
  std::vector<size_t> done(pool.size());
  for (int job = 0; job < jobs; ++job) {
    pool.run(count, grain, [&](size_t begin, size_t end, unsigned thread) {
      require(begin < end && end <= count && end - begin <= grain && thread < pool.size(), "a run out of bounds");
      for (size_t i = begin; i < end; ++i) next[i] = items[count - 1 - i] + 1;
      done[thread] += end - begin;
    });
    std::swap(items, next);
  }
  for (const int item : items) require(item == jobs, "an item was left out or done twice");
  require(std::accumulate(done.begin(), done.end(), size_t{0}) == count * static_cast<size_t>(jobs), "lost work");
}

// Plain memory again: a part of a stage reads what it and the parts before it left in the stage before.
void run_stages(foreword::ThreadPool& pool, size_t stages, size_t parts) {
  const auto sum = [](const std::vector<unsigned>& before, size_t part) {
    return std::accumulate(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(part) + 1, 1u);
  };
  std::vector<std::vector<unsigned>> got(stages + 1, std::vector<unsigned>(parts)), expected = got;
  for (size_t stage = 0; stage < stages; ++stage) {
    for (size_t part = 0; part < parts; ++part) expected[stage + 1][part] = sum(expected[stage], part);
  }
  pool.run_stages(stages, parts, [&](size_t stage, size_t part, unsigned thread) {
    require(thread < pool.size(), "no such thread");
    got[stage + 1][part] = sum(got[stage], part);
  });
  require(got == expected, "a part began before what it needs was done");
}

void pause_until_workers_sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

}  // namespace

int main() {
  for (const unsigned threads : {1u, 2u, 3u, 8u}) {
    foreword::ThreadPool pool(threads);
    run_jobs(pool, 1, 1, 20);
    run_jobs(pool, 7, 100, 20);
    run_jobs(pool, 1000, 1, 30);
    for (int i = 0; i < 20; ++i) {
      pause_until_workers_sleep();
      run_jobs(pool, 64, 3, 5);
    }
    for (const size_t parts : {1, 2, 5, 20}) run_stages(pool, 30, parts);
    run_stages(pool, 3, 0);
  }
  for (int i = 0; i < 50; ++i) foreword::ThreadPool idle(4);  // closed before its workers are up
  std::puts("thread pool: ok");
}
