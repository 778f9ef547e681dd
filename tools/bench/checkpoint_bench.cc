// Times saving, verifying and reading a checkpoint: three states of f32 and weights in bf16, 14
// bytes per parameter, beside writing the same bytes with nothing around it.
//
//   checkpoint_bench FOLDER [MILLIONS_OF_PARAMETERS]      FOLDER: new or empty; it is filled

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/checkpoint_reader.h"
#include "ckpt/checkpoint_writer.h"
#include "ckpt/convert.h"
#include "ckpt/file.h"
#include "ckpt/run_folder.h"
#include "engine/status.h"
#include "tools/bench/timing.h"

namespace pando {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;

// Seconds that `work` takes.
absl::StatusOr<double> Seconds(const std::function<absl::Status()>& work) {
  const double start = Now();
  PANDO_RETURN_IF_ERROR(work());
  return Now() - start;
}

absl::Status Time(const std::string& what, int64_t bytes,
                  const std::function<absl::Status()>& work) {
  PANDO_ASSIGN_OR_RETURN(const double seconds, Seconds(work));
  std::cout << what << ": " << seconds << " s, " << static_cast<double>(bytes) / seconds * 1e-9
            << " GB/s\n";
  return absl::OkStatus();
}

// The bytes of a checkpoint, straight from memory into one file.
absl::Status WritePlainly(const std::string& path, int64_t bytes,
                          const std::vector<float>& values) {
  PANDO_ASSIGN_OR_RETURN(File file, File::CreateNew(path));
  const auto piece = BytesOf(values.data(), kPieceElements);
  for (int64_t done = 0; done < bytes; done += static_cast<int64_t>(piece.size())) {
    PANDO_RETURN_IF_ERROR(file.Append(piece));
  }
  return file.Sync();
}

absl::Status Save(const RunFolder& run, const std::vector<float>& values) {
  const auto elements = static_cast<int64_t>(values.size());
  CheckpointInfo info;
  info.flat_size = elements;
  info.layout = {{"w", {elements}, 0}};
  const TensorSource source = [&](const TensorDecl& tensor, int64_t first, int64_t count,
                                  void* out) {
    ConvertElements(DType::kF32, values.data() + first, tensor.dtype, out, count);
    return absl::OkStatus();
  };
  PANDO_ASSIGN_OR_RETURN(CheckpointWriter writer, CheckpointWriter::Begin(run, info));
  PANDO_RETURN_IF_ERROR(
      writer.AddWeights(kWeightsFile, {{"w", DType::kBF16, {elements}}}, {}, source));
  std::vector<TensorDecl> states;
  for (const char* state : {kMasterState, kExpAvgState, kExpAvgSqState}) {
    states.push_back(StateTensorDecl(state, 0, elements));
  }
  PANDO_RETURN_IF_ERROR(writer.AddState(kOptimizerFile, states, source));
  return writer.Commit().status();
}

absl::Status ReadStates(const std::string& path, std::vector<float>* values) {
  PANDO_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(path));
  for (const std::string& state : reader.States()) {
    PANDO_RETURN_IF_ERROR(reader.ReadState(state, 0, absl::MakeSpan(*values)));
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& folder, int64_t elements) {
  const int64_t bytes = 14 * elements;
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 9973) * 1e-3f;
  PANDO_ASSIGN_OR_RETURN(const RunFolder run, RunFolder::Prepare(folder, bytes));
  const std::string plain = JoinPath(folder, "plain");
  const std::string path = JoinPath(folder, StepFolderName(0));
  for (int round = 0; round < 3; ++round) {
    PANDO_RETURN_IF_ERROR(
        Time("plain write", bytes, [&] { return WritePlainly(plain, bytes, values); }));
    std::filesystem::remove(plain);
    PANDO_RETURN_IF_ERROR(Time("save", bytes, [&] { return Save(run, values); }));
    PANDO_RETURN_IF_ERROR(Time("verify", bytes, [&] { return Verify(path); }));
    PANDO_RETURN_IF_ERROR(
        Time("read states", 12 * elements, [&] { return ReadStates(path, &values); }));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  const int64_t millions = argc > 2 ? std::atoll(argv[2]) : 110;
  if (argc < 2 || millions < 2) {
    std::cerr << "usage: checkpoint_bench FOLDER [MILLIONS_OF_PARAMETERS (at least 2)]\n";
    return 2;
  }
  const absl::Status status = pando::Run(argv[1], millions * 1'000'000);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
