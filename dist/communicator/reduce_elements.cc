#include "dist/communicator/reduce_elements.h"

#include <type_traits>

namespace pando {
namespace {

template <typename T>
T Add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a + b;
  } else {
    return RoundTo<T>(ToFloat(a) + ToFloat(b));
  }
}

template <typename T>
bool Less(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a < b;
  } else {
    return ToFloat(a) < ToFloat(b) || ToFloat(b) != ToFloat(b);
  }
}

template <typename T>
void Reduce(ReduceOp op, void* into, const void* from, int64_t count) {
  T* a = static_cast<T*>(into);
  const T* b = static_cast<const T*>(from);
  if (op == ReduceOp::kSum) {
    for (int64_t i = 0; i < count; ++i) a[i] = Add(a[i], b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) a[i] = Less(a[i], b[i]) ? b[i] : a[i];
  }
}

}  // namespace

void ReduceElements(DType dtype, ReduceOp op, void* into, const void* from, int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return Reduce<float>(op, into, from, count);
    case DType::kF64:
      return Reduce<double>(op, into, from, count);
    case DType::kBF16:
      return Reduce<BFloat16>(op, into, from, count);
    case DType::kF16:
      return Reduce<Float16>(op, into, from, count);
    case DType::kI32:
      return Reduce<int32_t>(op, into, from, count);
    case DType::kI64:
      return Reduce<int64_t>(op, into, from, count);
  }
}

}  // namespace pando
