#include "dist/hetero/simulate.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pando {
namespace {

// Assumptions, all in docs/poplar.md.
constexpr double kMatmulEfficiency = 0.6, kBandwidthEfficiency = 0.8, kLinkEfficiency = 0.8;
constexpr double kLaunchSeconds = 5e-6;  // of a kernel
constexpr double kKernelsPerLayer = 40;  // forward and backward
constexpr double kMemoryPart = 0.92;     // of a GPU's memory: the rest is the driver's, and margin
constexpr double kFixedBytes = 256e6;    // libraries' scratch
constexpr double kOptimizerBytes = 16 + 12 + 2;  // AdamW's reads and writes for an element
constexpr double kIntraLatency = 10e-6, kInterLatency = 25e-6;
constexpr int64_t kMostSamples = 512;  // of a micro-batch

int64_t BlockElements(const TransformerShape& s) {
  const int64_t keys = s.width / s.heads * s.key_heads;
  const int64_t attention = 2 * s.width * s.width + 2 * s.width * keys;
  return attention + (s.gated ? 3 : 2) * s.width * s.inner + 4 * s.width;
}

/// Bytes of a block's activations for a token.
int64_t BlockBytes(const TransformerShape& s) {
  const int64_t keys = s.width / s.heads * s.key_heads;
  const int64_t attention = 2 * s.width + 2 * (s.width + 2 * keys) + 2 * s.width;
  const int64_t feed_forward = 2 * s.width + (s.gated ? 6 : 4) * s.inner;
  return attention + feed_forward + 4 * s.width;
}

TimeCurve CurveOf(const GpuModel& gpu, const TransformerShape& s, bool recompute, int64_t most) {
  const double flops = s.FlopsPerSample() * (recompute ? 4.0 / 3 : 1);
  // Element-wise work reads and writes each activation a few times; weights are read three times.
  const double traffic = 3.0 * static_cast<double>(s.ActivationBytes(false));
  double weights = 0;
  for (const PlanUnit& u : s.Units()) weights += 2.0 * static_cast<double>(u.elements);
  const double once = static_cast<double>(s.layers) * kKernelsPerLayer * kLaunchSeconds +
                      3 * weights / (kBandwidthEfficiency * gpu.bandwidth);
  const double each = flops / (kMatmulEfficiency * gpu.half_flops) +
                      traffic / (kBandwidthEfficiency * gpu.bandwidth);
  std::vector<TimeCurve::Point> points = {{1, once + each}};
  if (most > 1) points.push_back({most, once + each * static_cast<double>(most)});
  return *TimeCurve::Fit(points);
}

Compute ComputeOf(const GpuModel& gpu, const TransformerShape& s, bool recompute, double memory,
                  int64_t global_batch) {
  Compute c;
  c.recompute = recompute;
  c.fixed_bytes = static_cast<int64_t>(kFixedBytes);
  c.bytes_per_sample = s.ActivationBytes(recompute);
  const auto most = static_cast<int64_t>(memory / static_cast<double>(c.bytes_per_sample));
  c.seconds = CurveOf(gpu, s, recompute,
                      std::clamp<int64_t>(most, 1, std::min(global_batch, kMostSamples)));
  return c;
}

/// Adds the node's devices, all like `device`.
void AddNode(const Cluster& cluster, size_t n, DeviceProfile device, double link,
             const std::string& what, PlanProblem& problem) {
  device.node = static_cast<int>(n);
  device.within = {kLinkEfficiency * link, kIntraLatency};
  device.between = {kLinkEfficiency * std::min(cluster.network, link), kInterLatency};
  for (int i = 0; i < cluster.nodes[n].gpus; ++i) {
    device.name = absl::StrCat("node ", n, " ", what, " ", i);
    problem.devices.push_back(device);
  }
}

}  // namespace

std::vector<PlanUnit> TransformerShape::Units() const {
  // A tied embedding is gathered for the head, too (docs/zero.md).
  std::vector<PlanUnit> units = {{vocabulary * width, tied ? 3 : 2}};
  units.insert(units.end(), static_cast<size_t>(layers), {BlockElements(*this), 2});
  units.push_back({tied ? width : vocabulary * width, 1});
  return units;
}

double TransformerShape::FlopsPerSample() const {
  const double matrices = static_cast<double>(layers) * static_cast<double>(BlockElements(*this)) +
                          static_cast<double>(vocabulary * width);
  const double scores = 12.0 * static_cast<double>(layers * width) * static_cast<double>(context);
  return (6 * matrices + scores) * static_cast<double>(context);
}

int64_t TransformerShape::ActivationBytes(bool recompute) const {
  const int64_t block = BlockBytes(*this);
  const int64_t blocks = recompute ? layers * 2 * width + block : layers * block;
  const int64_t logits = 4 * vocabulary;
  return (blocks + logits) * context;
}

absl::StatusOr<TransformerShape> FindShape(const std::string& name) {
  static const std::vector<TransformerShape> shapes = {
      {"gpt2-124m", 12, 768, 12, 12, 3072, false, true, 50257, 1024},
      {"gpt2-350m", 24, 1024, 16, 16, 4096, false, true, 50257, 1024},
      {"gpt2-774m", 36, 1280, 20, 20, 5120, false, true, 50257, 1024},
      {"gpt2-1.5b", 48, 1600, 25, 25, 6400, false, true, 50257, 1024},
      {"llama-0.5b", 22, 1280, 20, 20, 3456, true, false, 32000, 2048},
      {"llama-1.1b", 22, 2048, 32, 4, 5632, true, false, 32000, 2048},
      {"llama-8b", 32, 4096, 32, 8, 14336, true, false, 128256, 4096},
      {"bert-1.1b", 36, 1536, 24, 24, 6144, false, true, 30522, 512},
  };
  for (const TransformerShape& s : shapes) {
    if (s.name == name) return s;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no model called ", name, " is known here; there are ",
      absl::StrJoin(shapes, ", ",
                    [](std::string* out, const TransformerShape& s) { *out += s.name; })));
}

PlanProblem Simulate(const Cluster& cluster, const TransformerShape& shape, int64_t global_batch,
                     bool recompute) {
  PlanProblem problem;
  problem.global_batch = global_batch;
  problem.units = shape.Units();
  problem.dtype = DType::kBF16;
  std::map<std::tuple<const GpuModel*, double, double>, int> kinds;
  for (size_t n = 0; n < cluster.nodes.size(); ++n) {
    const ClusterNode& node = cluster.nodes[n];
    const GpuModel& gpu = *node.gpu;
    DeviceProfile device;
    device.kind =
        kinds.emplace(std::tuple(node.gpu, node.memory, node.link), kinds.size()).first->second;
    device.memory =
        static_cast<int64_t>((node.memory > 0 ? node.memory : gpu.memory) * kMemoryPart);
    const auto memory = static_cast<double>(device.memory);
    device.computes.push_back(ComputeOf(gpu, shape, false, memory, global_batch));
    if (recompute) device.computes.push_back(ComputeOf(gpu, shape, true, memory, global_batch));
    device.optimizer_seconds = kOptimizerBytes / (kBandwidthEfficiency * gpu.bandwidth);
    device.peak_flops = gpu.half_flops;
    AddNode(cluster, n, device, node.link > 0 ? node.link : gpu.link, gpu.name, problem);
  }
  return problem;
}

absl::StatusOr<PlanProblem> FromProfiles(const Cluster& cluster,
                                         const std::vector<MeasuredProfile>& profiles,
                                         int64_t global_batch) {
  PlanProblem problem;
  problem.global_batch = global_batch;
  problem.units = profiles.at(0).units;
  problem.dtype = profiles[0].dtype;
  std::map<std::tuple<std::string, double, double>, int> kinds;
  for (size_t n = 0; n < cluster.nodes.size(); ++n) {
    const ClusterNode& node = cluster.nodes[n];
    const MeasuredProfile& p = profiles.at(n);
    if (p.model != profiles[0].model || p.length != profiles[0].length ||
        p.dtype != profiles[0].dtype || p.units.size() != problem.units.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          node.profile, " was measured with ", p.model, ", ", cluster.nodes[0].profile, " with ",
          profiles[0].model, ": profile all devices with the same model, samples and precision"));
    }
    const absl::StatusOr<DeviceProfile> found = ToDevice(p);
    if (!found.ok()) return found.status();
    DeviceProfile device = *found;
    device.kind =
        kinds.emplace(std::tuple(node.profile, node.memory, node.link), kinds.size()).first->second;
    if (node.memory > 0) {
      device.memory = std::min(device.memory, static_cast<int64_t>(node.memory));
    }
    AddNode(cluster, n, device, node.link > 0 ? node.link : cluster.network, p.device, problem);
  }
  return problem;
}

}  // namespace pando
