// The KV cache's memory: blocks of kBlockSize tokens, each one contiguous run over all layers.
#pragma once

#include "foreword/kernels.h"

#include <cstddef>

namespace foreword {

// Within a block: [layer][kv head], and there keys [head_dim][kBlockSize] and values [kBlockSize][head_dim],
// the latter padded to a multiple of kLanes. That a
// block is one run makes copying, saving and sending it one memcpy.
class KVPool {
 public:
  KVPool(size_t layers, size_t kv_heads, size_t head_dim);
  ~KVPool();
  KVPool(const KVPool&) = delete;
  KVPool& operator=(const KVPool&) = delete;

  // Maps memory for `blocks`; pages that no token reaches are never backed. Throws std::bad_alloc, and
  // std::logic_error on a second call.
  void allocate(size_t blocks);

  size_t num_blocks() const { return blocks_; }
  size_t block_floats() const { return layers_ * kv_heads_ * head_floats(); }
  size_t block_bytes() const { return block_floats() * sizeof(float); }

  float* block(size_t index) { return data_ + index * block_floats(); }
  // Block 0's part for one layer and head; block i's is i * block_floats() further.
  float* head(size_t layer, size_t kv_head) { return data_ + (layer * kv_heads_ + kv_head) * head_floats(); }

  // Writes one token's key and value (head_dim floats each) for one layer and head.
  void write(size_t layer, size_t kv_head, size_t block, size_t slot, const float* key, const float* value);

 private:
  size_t head_floats() const { return kBlockSize * (head_dim_ + round_up(head_dim_, kLanes)); }

  size_t layers_, kv_heads_, head_dim_;
  size_t blocks_ = 0;
  float* data_ = nullptr;
};

}  // namespace foreword
