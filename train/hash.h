#pragma once

#include <cstddef>
#include <cstdint>

namespace pando {

/// 64-bit FNV-1a over the bytes given so far. For telling things apart, not against forgery.
class Fnv1a64 {
 public:
  void Add(const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < size; ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001B3u;
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325u;
};

}  // namespace pando
