// Single-precision products with a fixed order of additions.
//
// Each output is sixteen running sums along k, folded by one tree (`sum`). Nothing else enters it, so an output is the
// same in a tile of any shape: one token or five hundred.
#include "kernels.h"
#include "vec.h"

namespace foreword::FOREWORD_ISA {
namespace {

// Tokens in a tile: with kRowTile weight rows, as many sums as fit the registers.
constexpr size_t kTokenTile = kParts == 1 ? 4 : 3;

// kRowTile rows by T tokens. Registers narrower than sixteen lanes take the lanes in turn, one part of them at a time.
template <size_t T>
FOREWORD_INLINE void dot_tile(const float* x, size_t x_stride, const float* w, size_t w_stride, size_t k,
                              Vec (&sums)[T][kRowTile]) {
  for (size_t p = 0; p < kParts; ++p) {
    Reg acc[T][kRowTile] = {};
    for (size_t i = p * kWidth; i < k; i += kLanes) {
      Reg rows[kRowTile];
      for (size_t r = 0; r < kRowTile; ++r) rows[r] = load_reg(w + r * w_stride + i);
      for (size_t t = 0; t < T; ++t) {
        const Reg token = load_reg(x + t * x_stride + i);
        for (size_t r = 0; r < kRowTile; ++r) acc[t][r] = fma(token, rows[r], acc[t][r]);
      }
    }
    for (size_t t = 0; t < T; ++t) {
      for (size_t r = 0; r < kRowTile; ++r) sums[t][r].part[p] = acc[t][r];
    }
  }
}

template <size_t T>
void tokens_by_rows(const MatmulArgs& a, size_t token) {
  const float* x = a.x + token * a.x_stride;
  for (size_t row = 0; row < a.rows; row += kRowTile) {
    Vec sums[T][kRowTile];
    dot_tile<T>(x, a.x_stride, a.w + row * a.w_stride, a.w_stride, a.k, sums);
    const size_t valid = a.rows - row < kRowTile ? a.rows - row : kRowTile;
    for (size_t t = 0; t < T; ++t) {
      float* out = a.out + (token + t) * a.out_stride + row;
      const Quad dots = sum4(sums[t][0], sums[t][1], sums[t][2], sums[t][3]);
      for (size_t r = 0; r < valid; ++r) out[r] = (a.accumulate ? out[r] : 0.0f) + dots[r];
    }
  }
}

}  // namespace

void matmul(const MatmulArgs& a) {
  size_t token = 0;
  for (; token + kTokenTile <= a.tokens; token += kTokenTile) tokens_by_rows<kTokenTile>(a, token);
  switch (a.tokens - token) {
    case 3: return tokens_by_rows<3>(a, token);
    case 2: return tokens_by_rows<2>(a, token);
    case 1: return tokens_by_rows<1>(a, token);
  }
}

}  // namespace foreword::FOREWORD_ISA
