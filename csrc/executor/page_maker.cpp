#include "foreword/page_maker.h"

#include <sys/mman.h>

#include <algorithm>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace foreword {

namespace {

constexpr size_t kAhead = 64 << 20;  // bytes: the KV of a long prompt, and little of any machine
constexpr size_t kPiece = 2 << 20;   // at a time: a huge page
constexpr std::chrono::milliseconds kRest(5);  // longer than streams rest between two of their tokens

}  // namespace

PageMaker::PageMaker(uint8_t* data, size_t size)
    : data_(data),
      size_(size),
      wanted_(std::min(size, kAhead)),
      resumed_(Clock::now()),
      thread_([this] { run(); }) {}

PageMaker::~PageMaker() {
  {
    const std::lock_guard guard(lock_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void PageMaker::pause(size_t used) {
  bool woken;
  {
    const std::lock_guard guard(lock_);
    const bool done = made_ >= wanted_;
    paused_ = true;
    wanted_ = std::max(wanted_, std::min(size_, used + kAhead));
    woken = done && made_ < wanted_;
  }
  if (woken) changed_.notify_one();
}

void PageMaker::resume() {
  const std::lock_guard guard(lock_);
  paused_ = false;
  resumed_ = Clock::now();
}

void PageMaker::run() {
  std::unique_lock lock(lock_);
  while (!ending_) {
    if (made_ >= wanted_) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, kRest);
    if (Clock::now() - resumed_ < kRest) continue;
    while (!paused_ && !ending_ && made_ < wanted_) {
      uint8_t* const begin = data_ + made_;
      const size_t count = std::min(kPiece, size_ - made_);
      lock.unlock();
      const bool done = madvise(begin, count, MADV_POPULATE_WRITE) == 0;
      lock.lock();
      made_ = done ? made_ + count : size_;  // not here, or no memory left: whoever writes will see
    }
  }
}

}  // namespace foreword
