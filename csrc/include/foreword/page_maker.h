// Gives memory its pages before somebody writes to it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

namespace foreword {

// The first write to a page is a fault, and on a virtual machine the host has to find memory too: a millisecond for
// each MB, 3 % of computing a prompt whose KV goes there. So a thread goes ahead of the writers while they rest.
// Contents are never touched. On a system without MADV_POPULATE_WRITE (Linux before 5.14) it does nothing.
class PageMaker {
 public:
  // The memory is `size` bytes at `data`, both multiples of pages, and outlives this.
  PageMaker(uint8_t* data, size_t size);
  ~PageMaker();
  PageMaker(const PageMaker&) = delete;
  PageMaker& operator=(const PageMaker&) = delete;

  // Somebody writes to the first `used` bytes, or less, and wants the cores for it.
  void pause(size_t used);
  // They have ended.
  void resume();

 private:
  using Clock = std::chrono::steady_clock;

  void run();

  uint8_t* data_;
  size_t size_;
  std::mutex lock_;
  std::condition_variable changed_;
  size_t made_ = 0, wanted_;  // bytes, from the beginning
  bool paused_ = false, ending_ = false;
  Clock::time_point resumed_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace foreword
