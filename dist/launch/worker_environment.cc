#include "dist/launch/worker_environment.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/status.h"

namespace pando {
namespace {

/// What a launcher calls the four numbers.
struct Names {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* proof;  ///< set for its ranks only
};

constexpr Names kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_STEP_ID"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_RANK"},
};

std::string Text(const GetEnv& get, const char* name) {
  const char* value = *name == '\0' ? nullptr : get(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<int> Number(const GetEnv& get, const char* name, int otherwise) {
  const std::string text = Text(get, name);
  int number = otherwise;
  if (text.empty() || (absl::SimpleAtoi(text, &number) && number >= 0)) return number;
  return absl::InvalidArgumentError(
      absl::StrCat("the environment's ", name, "=", text, " is not a count"));
}

absl::StatusOr<WorkerEnvironment> Read(const GetEnv& get, const Names& names) {
  if (Text(get, names.world_size).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the environment has ", names.rank, ", but no ",
                                                   names.world_size, ": set both or neither"));
  }
  WorkerEnvironment e;
  e.launcher = names.launcher;
  PANDO_ASSIGN_OR_RETURN(e.rank, Number(get, names.rank, 0));
  PANDO_ASSIGN_OR_RETURN(e.world_size, Number(get, names.world_size, 1));
  PANDO_ASSIGN_OR_RETURN(e.local_rank, Number(get, names.local_rank, 0));
  PANDO_ASSIGN_OR_RETURN(e.local_world_size, Number(get, names.local_world_size, 0));
  if (e.world_size < 1 || e.rank >= e.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("the environment says ", names.rank, "=", e.rank,
                                                   " of ", names.world_size, "=", e.world_size));
  }
  return e;
}

}  // namespace

absl::StatusOr<WorkerEnvironment> FindWorkerEnvironment(const GetEnv& get) {
  WorkerEnvironment e;
  for (const Names& names : kLaunchers) {
    // A shell within an allocation has sizes, and a batch script a rank, but neither is one of
    // several tasks.
    if (Text(get, names.rank).empty() || Text(get, names.proof).empty()) continue;
    PANDO_ASSIGN_OR_RETURN(e, Read(get, names));
    break;
  }
  e.store = Text(get, kStoreVariable);
  e.secret = Text(get, kSecretVariable);
  PANDO_ASSIGN_OR_RETURN(e.generation, Number(get, kGenerationVariable, 0));
  if (!Text(get, kGenerationVariable).empty()) e.launcher = "pando launch";
  if (!e.alone() && e.store.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        e.launcher, " started rank ", e.rank, " of ", e.world_size, ", but ", kStoreVariable,
        " doesn't say where ranks find each other: run `pando store` on one machine, and give all "
        "ranks the ",
        kStoreVariable, " and ", kSecretVariable, " that it prints; or use `pando launch`"));
  }
  return e;
}

absl::StatusOr<WorkerEnvironment> FindWorkerEnvironment() {
  return FindWorkerEnvironment([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace pando
