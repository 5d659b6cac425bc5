#include "foreword/kv_pool.h"

#include <sys/mman.h>

#include <limits>
#include <new>
#include <stdexcept>

namespace foreword {

KVPool::KVPool(size_t layers, size_t kv_heads, const KVLayout& layout)
    : layers_(layers), kv_heads_(kv_heads), layout_(layout) {}

KVPool::~KVPool() {
  pages_.reset();
  if (data_) munmap(data_, blocks_ * block_bytes());
}

void KVPool::allocate(size_t blocks) {
  if (data_) throw std::logic_error("the pool is allocated already");
  if (blocks == 0 || blocks > std::numeric_limits<ptrdiff_t>::max() / block_bytes()) throw std::bad_alloc();
  void* memory = mmap(nullptr, blocks * block_bytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, blocks * block_bytes(), MADV_HUGEPAGE);  // fewer faults; a refusal costs nothing but time
  data_ = static_cast<uint8_t*>(memory);
  blocks_ = blocks;
  pages_ = std::make_unique<PageMaker>(data_, blocks * block_bytes());
}

}  // namespace foreword
