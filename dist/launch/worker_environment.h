#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace pando {

/// Which rank a process is, as whoever started it says by environment variables.
struct WorkerEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< among this machine's
  int local_world_size = 1;  ///< 0: not said
  std::string launcher;      ///< "pando launch", "torchrun", "srun", "mpirun"; empty: nobody
  std::string store;         ///< where ranks find each other: endpoints, as ParseEndpoints takes
  std::string secret;        ///< of the job
  int64_t generation = 0;    ///< of the group: of an older one nobody is answered

  bool alone() const { return world_size == 1; }
};

/// The environment variables' names that `pando launch` gives its workers beside torchrun's.
inline constexpr char kStoreVariable[] = "PANDO_STORE";
inline constexpr char kSecretVariable[] = "PANDO_STORE_SECRET";
inline constexpr char kGenerationVariable[] = "PANDO_GENERATION";
inline constexpr char kProgressVariable[] = "PANDO_PROGRESS";

/// Value of a variable; null if it isn't set.
using GetEnv = std::function<const char*(const char*)>;

/// Looks for torchrun's names (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; also `pando
/// launch`'s), then Slurm's, Open MPI's and those of PMI (MPICH, Intel MPI), in this order; none of
/// them: a process alone. InvalidArgument, naming the variable, for numbers that make no sense or
/// of which one is missing.
absl::StatusOr<WorkerEnvironment> FindWorkerEnvironment(const GetEnv& get);
absl::StatusOr<WorkerEnvironment> FindWorkerEnvironment();

}  // namespace pando
