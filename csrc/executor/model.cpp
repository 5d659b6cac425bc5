#include "foreword/model.h"

#include <cmath>

namespace foreword {

Rope make_rope(float base, size_t dim, float scale, std::span<const float> factors, bool interleaved) {
  Rope rope{std::vector<float>(dim / 2), interleaved};
  for (size_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float wavelength = static_cast<float>(std::pow(double{base}, double{exponent}));
    const float frequency = 1.0f / wavelength / scale;
    rope.frequencies[i] = factors.empty() ? frequency : frequency / factors[i];
  }
  return rope;
}

}  // namespace foreword
