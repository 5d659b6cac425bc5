// Chains of SHA-256 digests: what blocks of KV are called (foreword.kv.identity).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace foreword {

using Digest = std::array<uint8_t, 32>;
using Sha256State = std::array<uint32_t, 8>;

// Takes `count` blocks of 64 bytes into the state: FIPS 180-4, 6.2.2.
using Sha256Compress = void (*)(Sha256State& state, const uint8_t* data, size_t count);

void sha256_portable(Sha256State& state, const uint8_t* data, size_t count);

// The fastest that this processor has.
Sha256Compress sha256_best();

Digest sha256(std::string_view message, Sha256Compress compress);

// A digest for each whole `part_bytes` of `data`: that of `tag`, the digest before (first: `parent`) and the part.
std::vector<Digest> sha256_chain(std::string_view tag, std::string_view parent, std::string_view data,
                                 size_t part_bytes, Sha256Compress compress);

}  // namespace foreword
