#include "tests/ops/op_table_host.h"

#include <algorithm>

namespace pando {

void ForEachIndex(const std::vector<int64_t>& dims,
                  const std::function<void(const std::vector<int64_t>&)>& visit) {
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t left = CountOf(dims); left > 0; --left) {
    visit(index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

double BroadcastAt(const HostTensor& t, const std::vector<int64_t>& index) {
  const size_t missing = index.size() - t.dims.size();
  int64_t at = 0;
  for (size_t d = 0; d < t.dims.size(); ++d) {
    at = at * t.dims[d] + (t.dims[d] == 1 ? 0 : index[missing + d]);
  }
  return t.values[static_cast<size_t>(at)];
}

std::vector<int64_t> HostBroadcastDims(const std::vector<int64_t>& a,
                                       const std::vector<int64_t>& b) {
  if (a.size() < b.size()) return HostBroadcastDims(b, a);
  std::vector<int64_t> dims = a;
  for (size_t d = a.size() - b.size(); d < a.size(); ++d) {
    if (dims[d] == 1) dims[d] = b[d - (a.size() - b.size())];
  }
  return dims;
}

HostFunction HostBroadcast(const std::function<double(double, double)>& f) {
  return [f](const HostTensors& x) {
    HostTensor y{HostBroadcastDims(x[0].dims, x[1].dims), {}};
    ForEachIndex(y.dims, [&](const std::vector<int64_t>& index) {
      y.values.push_back(f(BroadcastAt(x[0], index), BroadcastAt(x[1], index)));
    });
    return HostTensors{y};
  };
}

}  // namespace pando
