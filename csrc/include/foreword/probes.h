// What this machine can do at most: the limits that kernels are judged by. Each probe takes the time that it is given.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace foreword {

enum class Arithmetic { kInt8Dot, kFloat32Fma };

// Instructions that multiply and add, on registers alone, with nothing to wait for.
struct ArithmeticProbe {
  Arithmetic arithmetic;
  std::string_view isa;                        // the kernel table that has them
  size_t (*run)(size_t rounds);  // returns multiply-adds done
};

// Those that this machine can run, widest first.
std::vector<ArithmeticProbe> arithmetic_probes();

// Multiply-adds per second of `threads` threads together.
double arithmetic_rate(const ArithmeticProbe& probe, unsigned threads, double seconds);

// Memory that is read again and again, each thread a part of its own. More than the caches hold.
class ReadProbe {
 public:
  explicit ReadProbe(size_t bytes);  // rounded up; throws std::bad_alloc

  // Bytes per second of `threads` threads together. Goes on where the last call ended, so that short calls do not find
  // their bytes in a cache either.
  double rate(unsigned threads, double seconds);

 private:
  struct Free {
    void operator()(char* p) const;
  };
  size_t bytes_, next_ = 0;
  std::unique_ptr<char, Free> memory_;
};

}  // namespace foreword
