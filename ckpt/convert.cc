#include "ckpt/convert.h"

#include <cstring>
#include <type_traits>

#include "engine/error.h"

namespace pando {
namespace {

template <typename From, typename To>
To ConvertOne(From x) {
  if constexpr (std::is_same_v<To, double>) {
    return static_cast<double>(ToFloat(x));
  } else {
    return RoundTo<To>(static_cast<float>(ToFloat(x)));
  }
}

template <typename From, typename To>
void Convert(const void* from, void* to, int64_t count) {
  const auto* in = static_cast<const unsigned char*>(from);
  auto* out = static_cast<unsigned char*>(to);
  for (int64_t i = 0; i < count; ++i) {
    From x;
    std::memcpy(&x, in + i * int64_t{sizeof(From)}, sizeof(From));
    const To y = ConvertOne<From, To>(x);
    std::memcpy(out + i * int64_t{sizeof(To)}, &y, sizeof(To));
  }
}

template <typename From>
void ConvertFrom(const void* from, DType to_type, void* to, int64_t count) {
  switch (to_type) {
    case DType::kF32:
      return Convert<From, float>(from, to, count);
    case DType::kBF16:
      return Convert<From, BFloat16>(from, to, count);
    case DType::kF16:
      return Convert<From, Float16>(from, to, count);
    case DType::kF64:
      return Convert<From, double>(from, to, count);
    case DType::kI32:
    case DType::kI64:
      break;
  }
}

}  // namespace

bool CanConvert(DType from, DType to) { return from == to || (IsFloating(from) && IsFloating(to)); }

void ConvertElements(DType from_type, const void* from, DType to_type, void* to, int64_t count) {
  Require(CanConvert(from_type, to_type), "ConvertElements: can't convert ", Name(from_type),
          " to ", Name(to_type));
  if (from_type == to_type) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count * SizeOf(to_type)));
    return;
  }
  switch (from_type) {
    case DType::kF32:
      return ConvertFrom<float>(from, to_type, to, count);
    case DType::kBF16:
      return ConvertFrom<BFloat16>(from, to_type, to, count);
    case DType::kF16:
      return ConvertFrom<Float16>(from, to_type, to, count);
    case DType::kF64:
      return ConvertFrom<double>(from, to_type, to, count);
    case DType::kI32:
    case DType::kI64:
      break;
  }
}

}  // namespace pando
