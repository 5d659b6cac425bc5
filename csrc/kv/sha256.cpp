// SHA-256 (NIST FIPS 180-4), with the processor's instructions for it where it has them.
#include "foreword/sha256.h"
#include "foreword/features.h"

#include <bit>
#include <cstring>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foreword {
namespace {

constexpr size_t kBlock = 64;

// 5.3.3: the fractions of the square roots of the first 8 primes.
constexpr Sha256State kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// 4.2.2: the fractions of the cube roots of the first 64 primes.
alignas(16) constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void store_big_endian(uint32_t word, uint8_t* bytes) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(word >> (24 - 8 * i));
}

#if defined(__x86_64__)

__attribute__((target("sha,sse4.1"))) __m128i load(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// Four rounds at a time. The instructions (Intel's manual, volume 2, SHA256RNDS2) want the state as ABEF and CDGH, first
// letter highest.
__attribute__((target("sha,sse4.1"))) void sha256_ni(Sha256State& state, const uint8_t* data, size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i cdab = _mm_shuffle_epi32(load(&state[0]), 0xb1), efgh = _mm_shuffle_epi32(load(&state[4]), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; count > 0; --count, data += kBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the schedule's last 16 words
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m128i& now = w[i % 4];
      if (i < 4) {
        now = _mm_shuffle_epi8(load(data + 16 * i), big_endian);
      } else {
        const __m128i last = w[(i + 3) % 4], seven_back = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
        now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), seven_back), last);
      }
      const __m128i added = _mm_add_epi32(now, load(kRounds + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, added);  // two rounds on, it is ABEF, and ABEF is CDGH
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(added, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[0]), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(dchg, feba, 8));
}

#endif

}  // namespace

void sha256_portable(Sha256State& state, const uint8_t* data, size_t count) {
  const auto sum = [](uint32_t x, int i, int j, int k) { return std::rotr(x, i) ^ std::rotr(x, j) ^ std::rotr(x, k); };
  for (; count > 0; --count, data += kBlock) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) w[t] = load_big_endian(data + 4 * t);
    for (int t = 16; t < 64; ++t) {
      const uint32_t x = w[t - 15], y = w[t - 2];
      const uint32_t sigma0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3;
      const uint32_t sigma1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10;
      w[t] = w[t - 16] + sigma0 + w[t - 7] + sigma1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int t = 0; t < 64; ++t) {
      const uint32_t t1 = h + sum(e, 6, 11, 25) + ((e & f) ^ (~e & g)) + kRounds[t] + w[t];
      const uint32_t t2 = sum(a, 2, 13, 22) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1;
      d = c, c = b, b = a, a = t1 + t2;
    }
    const Sha256State worked = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < state.size(); ++i) state[i] += worked[i];
  }
}

Sha256Compress sha256_best() {
#if defined(__x86_64__)
  static const bool has_instructions = has_feature("sha_ni");
  if (has_instructions) return sha256_ni;
#endif
  return sha256_portable;
}

Digest sha256(std::string_view message, Sha256Compress compress) {
  Sha256State state = kInitial;
  const auto* data = reinterpret_cast<const uint8_t*>(message.data());
  const size_t rest = message.size() % kBlock, num_last = rest < kBlock - 8 ? 1 : 2;
  compress(state, data, message.size() / kBlock);
  uint8_t last[2 * kBlock] = {};  // 5.1.1: a one, zeros, and the length in bits
  std::memcpy(last, data + message.size() - rest, rest);
  last[rest] = 0x80;
  const uint64_t bits = uint64_t{message.size()} * 8;
  store_big_endian(static_cast<uint32_t>(bits >> 32), last + num_last * kBlock - 8);
  store_big_endian(static_cast<uint32_t>(bits), last + num_last * kBlock - 4);
  compress(state, last, num_last);
  Digest digest;
  for (size_t i = 0; i < state.size(); ++i) store_big_endian(state[i], digest.data() + 4 * i);
  return digest;
}

std::vector<Digest> sha256_chain(std::string_view tag, std::string_view parent, std::string_view data,
                                 size_t part_bytes, Sha256Compress compress) {
  std::vector<Digest> digests;
  digests.reserve(data.size() / part_bytes);
  std::string message;
  for (size_t at = 0; at + part_bytes <= data.size(); at += part_bytes) {
    message.assign(tag).append(parent).append(data.substr(at, part_bytes));
    const Digest& digest = digests.emplace_back(sha256(message, compress));
    parent = {reinterpret_cast<const char*>(digest.data()), digest.size()};
  }
  return digests;
}

}  // namespace foreword
