// The KV cache's memory: blocks of kBlockSize tokens, each one contiguous run over all layers.
#pragma once

#include "foreword/attention.h"
#include "foreword/page_maker.h"

#include <cstddef>
#include <memory>

namespace foreword {

// Within a block: [layer][kv head], each part as KVLayout says. That a block is one run makes copying, saving and
// sending it one memcpy.
class KVPool {
 public:
  KVPool(size_t layers, size_t kv_heads, const KVLayout& layout);
  ~KVPool();
  KVPool(const KVPool&) = delete;
  KVPool& operator=(const KVPool&) = delete;

  // Maps memory for `blocks`; what tokens do not come near (see PageMaker) is never backed by pages. Throws
  // std::bad_alloc, and std::logic_error on a second call.
  void allocate(size_t blocks);

  const KVLayout& layout() const { return layout_; }
  size_t num_blocks() const { return blocks_; }
  size_t block_bytes() const { return layers_ * kv_heads_ * layout_.bytes; }

  // A step that writes to no block beyond `last`, for as long as this lives.
  class Writing {
   public:
    Writing(KVPool& pool, size_t last) : pages_(*pool.pages_) { pages_.pause((last + 1) * pool.block_bytes()); }
    ~Writing() { pages_.resume(); }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    PageMaker& pages_;
  };

  uint8_t* block(size_t index) { return data_ + index * block_bytes(); }
  // Block 0's part for one layer and head; block i's is i * block_bytes() further.
  uint8_t* head(size_t layer, size_t kv_head) { return data_ + (layer * kv_heads_ + kv_head) * layout_.bytes; }

 private:
  size_t layers_, kv_heads_;
  KVLayout layout_;
  size_t blocks_ = 0;
  uint8_t* data_ = nullptr;
  std::unique_ptr<PageMaker> pages_;
};

}  // namespace foreword
