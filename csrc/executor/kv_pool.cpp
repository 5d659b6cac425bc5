#include "foreword/kv_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>

namespace foreword {

KVPool::KVPool(size_t layers, size_t kv_heads, size_t head_dim)
    : layers_(layers), kv_heads_(kv_heads), head_dim_(head_dim) {}

KVPool::~KVPool() {
  if (data_) munmap(data_, blocks_ * block_bytes());
}

void KVPool::allocate(size_t blocks) {
  if (data_) throw std::logic_error("the pool is allocated already");
  if (blocks == 0 || blocks > std::numeric_limits<ptrdiff_t>::max() / block_bytes()) throw std::bad_alloc();
  void* memory = mmap(nullptr, blocks * block_bytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, blocks * block_bytes(), MADV_HUGEPAGE);  // fewer faults; a refusal costs nothing but time
  data_ = static_cast<float*>(memory);
  blocks_ = blocks;
}

void KVPool::write(size_t layer, size_t kv_head, size_t block, size_t slot, const float* key, const float* value) {
  float* keys = head(layer, kv_head) + block * block_floats();
  for (size_t d = 0; d < head_dim_; ++d) keys[d * kBlockSize + slot] = key[d];
  std::copy_n(value, head_dim_, keys + kBlockSize * head_dim_ + slot * round_up(head_dim_, kLanes));
}

}  // namespace foreword
