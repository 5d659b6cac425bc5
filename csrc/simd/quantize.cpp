// Activations to eight bits, in groups, four of them at a time: what belongs to a group, not to an activation, is done in
// a lane for each. The twin's operations in the twin's order, so the same bits.
#include "integers.h"
#include "kernels.h"

#include <algorithm>

namespace foreword::FOREWORD_ISA {

#if defined(__AVX2__)

namespace {

constexpr size_t kAtOnce = 4;  // groups

typedef int32_t IntQuad __attribute__((vector_size(16)));

// Where a group's results go: QuantizeArgs' values or rest.
struct Target {
  int8_t* values;
  GroupScale* groups;
  size_t values_stride, groups_stride;

  int8_t* value(size_t g) const { return values + g * values_stride; }
  GroupScale& group(size_t g) const { return groups[g * groups_stride]; }
};

// One lane for each group's vector.
template <typename Op>
FOREWORD_INLINE IntQuad fold_groups(const IntVec (&v)[kAtOnce], Op op) {
  return reinterpret_cast<IntQuad>(
      fold4(as_floats(v[0]), as_floats(v[1]), as_floats(v[2]), as_floats(v[3]), on_integers(op)));
}

FOREWORD_INLINE IntReg magnitude_bits(const float* x) { return reinterpret_cast<IntReg>(load_reg(x)) & 0x7fffffff; }

// `count` groups, at most kAtOnce.
FOREWORD_INLINE void quantize_groups(const float* x, size_t count, const Target& out) {
  static_assert(kGroup == 2 * kLanes);
  const float* from[kAtOnce];
  for (size_t g = 0; g < kAtOnce; ++g) from[g] = x + (g < count ? g : 0) * kGroup;

  IntVec most[kAtOnce];
  for (size_t g = 0; g < kAtOnce; ++g) {
    FOREWORD_EACH_PART {
      const IntReg a = magnitude_bits(from[g] + p * kWidth), b = magnitude_bits(from[g] + kLanes + p * kWidth);
      most[g].part[p] = a > b ? a : b;
    }
  }
  // As integers: in their order nothing is larger than what is no number, so it is not lost.
  const IntQuad bits = fold_groups(most, [](auto a, auto b) { return a > b ? a : b; });
  const Quad highest = reinterpret_cast<Quad>(bits), zero{};
  const IntQuad usable = (highest >= kLeastActivation) & (bits < 0x7f800000);
  const Quad scale = highest < kLeastActivation ? zero : highest / 127.0f;
  const Quad up = usable ? 127.0f / highest : zero;  // a factor of zero leaves zeros, of no number too

  IntVec sums[kAtOnce];
  for (size_t g = 0; g < kAtOnce; ++g) {
    const IntVec low = nearest(load(from[g]) * splat(up[g])), high = nearest(load(from[g] + kLanes) * splat(up[g]));
    FOREWORD_EACH_PART sums[g].part[p] = low.part[p] + high.part[p];
    if (g >= count) continue;
    store_bytes(out.value(g), low);
    store_bytes(out.value(g) + kLanes, high);
  }
  const IntQuad sum = usable & fold_groups(sums, [](auto a, auto b) { return a + b; });
  const Quad scaled = __builtin_convertvector(sum, Quad) * scale;
  for (size_t g = 0; g < count; ++g) out.group(g) = {scale[g], scaled[g], sum[g]};
}

// x - scale * i
FOREWORD_INLINE void subtract(const float* x, size_t count, const Target& in, float* rest) {
  for (size_t g = 0; g < count; ++g) {
    for (size_t i = 0; i < kGroup; ++i) {
      rest[g * kGroup + i] = x[g * kGroup + i] - static_cast<float>(in.value(g)[i]) * in.group(g).scale;
    }
  }
}

}  // namespace

void quantize(const QuantizeArgs& a) {
  for (size_t first = 0; first < groups_of(a.n); first += kAtOnce) {
    const auto target = [&](int8_t* values, GroupScale* groups) {
      return Target{values + first * a.values_stride, groups + first * a.groups_stride, a.values_stride, a.groups_stride};
    };
    const float* x = a.x + first * kGroup;
    const size_t n = std::min(kAtOnce * kGroup, a.n - first * kGroup), count = groups_of(n);
    float padded[kAtOnce * kGroup], rest[kAtOnce * kGroup];
    if (n % kGroup != 0) {
      std::memcpy(padded, x, n * sizeof(float));
      std::memset(padded + n, 0, (count * kGroup - n) * sizeof(float));
      x = padded;
    }
    const Target whole = target(a.values, a.groups);
    quantize_groups(x, count, whole);
    if (!a.rest_values) continue;
    subtract(x, count, whole, rest);
    quantize_groups(rest, count, target(a.rest_values, a.rest_groups));
  }
}

#else

void quantize(const QuantizeArgs& a) { kReferenceKernels.quantize(a); }

#endif

}  // namespace foreword::FOREWORD_ISA
