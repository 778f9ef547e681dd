#pragma once

// Clusters and models that are only described: what planning needs to know of them, without any of
// them being there. See docs/poplar.md for what is assumed.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dist/hetero/gpu_catalogue.h"
#include "dist/hetero/plan_problem.h"
#include "dist/hetero/profile_file.h"

namespace pando {

/// A transformer by its sizes.
struct TransformerShape {
  std::string name;
  int64_t layers, width, heads;
  int64_t key_heads;  ///< heads of keys and values
  int64_t inner;      ///< width of the feed-forward layers
  bool gated;         ///< three matrices instead of two (SwiGLU)
  bool tied;          ///< whether the head is the embedding
  int64_t vocabulary, context;

  /// The embedding, the blocks, the head.
  std::vector<PlanUnit> Units() const;
  /// Of forward and backward: 6 for each parameter of a matrix, and attention's scores.
  double FlopsPerSample() const;
  /// Kept for backward in 16 bits, by the counts of Korthikanti et al. (2022) for attention that
  /// stores no scores; with recompute a block's input and, for a while, one block.
  int64_t ActivationBytes(bool recompute) const;
};

/// gpt2-124m to gpt2-1.5b, llama-0.5b, llama-1.1b, bert-1.1b, llama-8b. InvalidArgument, listing
/// them, for another name.
absl::StatusOr<TransformerShape> FindShape(const std::string& name);

struct ClusterNode {
  const GpuModel* gpu = nullptr;  ///< null where there is a profile instead
  std::string profile;            ///< file of one that was measured
  int gpus = 1;
  double memory = 0;  ///< bytes of each GPU; 0: all it has
  double link = 0;    ///< bytes a second between GPUs of the node; 0: by data sheet
};

struct Cluster {
  std::vector<ClusterNode> nodes;
  double network = 0;  ///< bytes a second in and out of a node
};

/// The problem of training the model on the cluster with so many samples a step, in 16 bits.
/// `recompute`: whether it may be chosen.
PlanProblem Simulate(const Cluster& cluster, const TransformerShape& shape, int64_t global_batch,
                     bool recompute);

/// The problem of training the model that the nodes' profiles were measured with. `profiles`: by
/// node. InvalidArgument where they are of different models, samples or precisions.
absl::StatusOr<PlanProblem> FromProfiles(const Cluster& cluster,
                                         const std::vector<MeasuredProfile>& profiles,
                                         int64_t global_batch);

}  // namespace pando
