#include "tools/golden/training_inputs.h"

#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/atomic_file.h"
#include "ckpt/safetensors.h"
#include "engine/cpu/cpu_device.h"
#include "engine/error.h"
#include "engine/status.h"
#include "models/gpt.h"
#include "tools/pando/run_data.h"
#include "tools/pando/saved_model.h"
#include "train/trainer.h"

namespace pando {
namespace {

absl::Status WriteWindows(const Trainer& trainer, const std::string& path) {
  const TrainerOptions& o = trainer.options();
  std::vector<uint8_t> bytes;
  for (int64_t sample = 0; sample < o.steps * o.global_batch; ++sample) {
    const int64_t start = trainer.order().At(sample).start;
    for (int byte = 0; byte < 8; ++byte) bytes.push_back(start >> 8 * byte & 0xFF);
  }
  PANDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  PANDO_RETURN_IF_ERROR(file.out().Append(bytes));
  return file.Commit().status();
}

absl::Status WriteWeights(Zero& parameters, const std::string& path) {
  std::vector<TensorDecl> tensors;
  for (const FlatLayout::Entry& e : parameters.layout().entries()) {
    tensors.push_back({e.parameter->name(), DType::kF32, e.parameter->shape().dims()});
  }
  PANDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  PANDO_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                         SafetensorsWriter::Begin(&file.out(), tensors, {{"format", "pt"}}));
  for (const FlatLayout::Entry& e : parameters.layout().entries()) {
    const std::vector<float> values =
        parameters.masters().Narrow(e.offset, e.parameter->shape().numel()).ToHost<float>();
    PANDO_RETURN_IF_ERROR(writer.Append(absl::MakeConstSpan(values)));
  }
  PANDO_RETURN_IF_ERROR(writer.CheckComplete());
  return file.Commit().status();
}

}  // namespace

void WriteTrainingInputs(TrainOptions options, const std::string& windows,
                         const std::string& init) {
  Require(options.init_from.empty(),
          "--init-from: its folder has the initial weights already; leave it out");
  const Data data = OpenRunData(options);
  ParameterRegistry registry;
  Gpt model(registry.Root(), options.gpt);
  Trainer trainer(model, registry, CpuDevice(), data.train, data.validation, options.trainer);
  ThrowIfNotOk(WriteWindows(trainer, windows));
  ThrowIfNotOk(WriteWeights(trainer.parameters(), init));
}

}  // namespace pando
