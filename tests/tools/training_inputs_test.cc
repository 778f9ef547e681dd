#include "tools/golden/training_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/safetensors.h"
#include "engine/cpu/cpu_device.h"
#include "models/gpt.h"
#include "tests/train/testing.h"
#include "tools/pando/run_data.h"
#include "train/trainer.h"

namespace pando {
namespace {

/// A GPT that notes what it is trained on.
class Recorder : public Gpt {
 public:
  using Gpt::Gpt;
  Tensor Loss(const Tensor& tokens, const Tensor& targets, const StepContext& step,
              double scale) override {
    for (Parameter* p : scope().registry().parameters()) {
      // Of the first step.
      if (weights.count(p->name()) == 0) weights[p->name()] = p->value().ToHost<float>();
    }
    for (const int32_t id : tokens.ToHost<int32_t>()) seen.push_back(id);
    for (const int32_t id : targets.ToHost<int32_t>()) expected.push_back(id);
    return Gpt::Loss(tokens, targets, step, scale);
  }
  std::map<std::string, std::vector<float>> weights;
  std::vector<int32_t> seen, expected;
};

/// Over two epochs, in micro-batches, so that nothing but the dumped order agrees.
TrainOptions SmallRun(const std::string& data) {
  TrainOptions o;
  o.data = data;
  o.gpt = {.context = 8, .layers = 2, .heads = 2, .width = 16, .bias = false};
  o.trainer.steps = 9;
  o.trainer.global_batch = 6;
  o.trainer.micro_batch = 4;
  o.trainer.eval_interval = 0;
  o.trainer.seed = 5;
  return o;
}

/// 300 characters, in which few windows look alike; of 'a' to 'z', each of which is there.
std::string Text() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>('a' + (i * i * 7 + i / 26) % 26);
  for (char c = 'a'; c <= 'z'; ++c) text[c - 'a'] = c;
  return text;
}

int64_t LittleEndian(const std::string& bytes, size_t first) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[first + i])} << 8 * i;
  return static_cast<int64_t>(value);
}

class TrainingInputsTest : public ::testing::Test {
 protected:
  TrainingInputsTest() {
    WriteTrainingInputs(options_, windows_, init_);
    const Data data = OpenRunData(options_);
    model_ = std::make_unique<Recorder>(registry_.Root(), options_.gpt);
    Trainer(*model_, registry_, CpuDevice(), data.train, TokenDataset(), options_.trainer).Run();
  }

  TemporaryFolder folder_;
  std::string windows_ = folder_.path() + "/windows";
  std::string init_ = folder_.path() + "/init.safetensors";
  TrainOptions options_ = SmallRun(folder_.Write("text.txt", Text()));
  ParameterRegistry registry_;
  std::unique_ptr<Recorder> model_;
};

TEST_F(TrainingInputsTest, WindowsAreWhatTheModelSees) {
  const std::string bytes = ReadAll(windows_);
  ASSERT_EQ(bytes.size(), 8 * 9 * 6);
  std::vector<int32_t> tokens, targets;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const int64_t start = LittleEndian(bytes, i);
    ASSERT_GE(start, 0);
    ASSERT_LT(start + 8, 270);  // the first nine tenths
    for (int64_t t = start; t < start + 8; ++t) {
      tokens.push_back(Text()[t] - 'a');
      targets.push_back(Text()[t + 1] - 'a');
    }
  }
  EXPECT_EQ(model_->seen, tokens);
  EXPECT_EQ(model_->expected, targets);
}

TEST_F(TrainingInputsTest, WeightsAreWhatTheFirstStepFinds) {
  auto file = SafetensorsReader::Open(init_);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors().size(), model_->weights.size());
  for (const auto& [name, used] : model_->weights) {
    const TensorEntry* tensor = file->Find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->shape, registry_.Find(name)->shape().dims()) << name;
    // The used ones may have padding behind.
    std::vector<float> written(registry_.Find(name)->shape().numel());
    ASSERT_TRUE(file->Read(name, 0, absl::MakeSpan(written)).ok()) << name;
    ASSERT_GE(used.size(), written.size());
    EXPECT_TRUE(std::equal(written.begin(), written.end(), used.begin())) << name;
  }
}

}  // namespace
}  // namespace pando
