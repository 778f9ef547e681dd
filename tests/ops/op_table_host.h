#pragma once

// What basic operations must give, by plain loops over indices.

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/ops/op_table.h"

namespace pando {

/// Calls visit(index) for every index of a tensor of shape `dims`, in row-major order.
void ForEachIndex(const std::vector<int64_t>& dims,
                  const std::function<void(const std::vector<int64_t>&)>& visit);

/// Element of `t`, broadcast by NumPy's rules, at `index` of the broadcast shape.
double BroadcastAt(const HostTensor& t, const std::vector<int64_t>& index);

/// NumPy's broadcast shape.
std::vector<int64_t> HostBroadcastDims(const std::vector<int64_t>& a,
                                       const std::vector<int64_t>& b);

/// f over two inputs broadcast together.
HostFunction HostBroadcast(const std::function<double(double, double)>& f);

}  // namespace pando
