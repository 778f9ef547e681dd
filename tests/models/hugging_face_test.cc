// Hugging Face's GPT-2 folders: a tiny one that transformers has saved (see tools/golden/README.md)
// is read, computes what transformers computed, and what Pando saves has the same names.
#include "models/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "ckpt/checkpoint_folder.h"
#include "ckpt/run_folder.h"
#include "ckpt/tensor_file_set.h"
#include "engine/cpu/cpu_device.h"
#include "engine/error.h"
#include "train/generate.h"
#include "train/model_checkpoint.h"

namespace pando {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

const char kFolder[] = "tests/models/testdata/hf_gpt2_tiny";

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(std::string(value.status().message()));
  return *std::move(value);
}

/// A model for the weights of the folder, without them.
struct Model {
  Model()
      : gpt(registry.Root(),
            Value(GptConfigFromJson(ReadText(std::string(kFolder) + "/config.json"), kFolder))),
        flat(registry, DType::kF32, CpuDevice()) {}

  absl::Status Load(const std::string& path) {
    TensorFileSet weights = Value(TensorFileSet::Open(path));
    return LoadWeights(weights, flat);
  }

  /// [B, T, vocabulary], without the padding.
  std::vector<float> Logits(const std::vector<int32_t>& tokens, int64_t batch) {
    const NoGrad no_grad;
    const auto length = static_cast<int64_t>(tokens.size()) / batch;
    const Tensor padded =
        gpt.Logits(Tensor::FromHost(tokens, {batch, length}, CpuDevice()), StepContext{});
    const std::vector<float> all = padded.ToHost<float>();
    std::vector<float> logits;
    for (auto row = all.begin(); row != all.end(); row += padded.dim(-1)) {
      logits.insert(logits.end(), row, row + gpt.vocab_size());
    }
    return logits;
  }

  ParameterRegistry registry;
  Gpt gpt;
  FlatParameters flat;
};

class HuggingFaceTest : public ::testing::Test {
 protected:
  HuggingFaceTest()
      : golden_(Value(TensorFileSet::Open(std::string(kFolder) + "/golden.safetensors"))) {
    EXPECT_TRUE(model_.Load(kFolder).ok());
    tokens_.resize(golden_.Find("tokens")->elements);
    EXPECT_TRUE(golden_.Read<int32_t>("tokens", 0, absl::MakeSpan(tokens_)).ok());
  }

  TensorFileSet golden_;
  Model model_;
  std::vector<int32_t> tokens_;  // [2, 24]
};

// Of the largest logit. Logits are sums of 32 to 128 products of f32, a few times over: a few times
// 2^-24 sqrt(128). What they are compared with is exact, or has the like rounding.
constexpr double kTolerance = 2e-6;

TEST_F(HuggingFaceTest, LogitsAreThoseOfTransformers) {
  const std::vector<float> got = model_.Logits(tokens_, 2);
  std::vector<float> want(got.size());
  ASSERT_EQ(golden_.Find("logits")->elements, static_cast<int64_t>(want.size()));
  ASSERT_TRUE(golden_.Read<float>("logits", 0, absl::MakeSpan(want)).ok());
  double largest = 0, error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(double{want[i]}));
    error = std::max(error, std::abs(double{got[i]} - want[i]));
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LE(error, kTolerance * largest);
}

TEST_F(HuggingFaceTest, GreedyContinuationsAreThoseOfTransformers) {
  Json golden = Json::parse(ReadText(std::string(kFolder) + "/golden.json"));
  const auto prompt = golden["prompt_tokens"].get<int64_t>();
  for (size_t row = 0; row < 2; ++row) {
    const auto start = tokens_.begin() + static_cast<int64_t>(row) * 24;
    const auto want = golden["greedy"][row].get<std::vector<int32_t>>();
    std::vector<int32_t> got;
    Generate(model_.gpt, CpuDevice(), {start, start + prompt}, static_cast<int64_t>(want.size()),
             {.temperature = 0}, [&](int32_t token) { got.push_back(token); });
    EXPECT_EQ(got, want) << row;

    // The same without a cache: all positions again for every token.
    std::vector<int32_t> text(start, start + prompt);
    for (const int32_t token : want) {
      const std::vector<float> logits = model_.Logits(text, 1);
      const auto last = logits.end() - model_.gpt.vocab_size();
      EXPECT_EQ(std::max_element(last, logits.end()) - last, token) << "at " << text.size();
      text.push_back(token);
    }
  }
}

// Token by token, or the prompt in pieces: the cache gives what the whole prefix gives, up to the
// rounding of sums in another order.
TEST_F(HuggingFaceTest, CacheGivesTheLogitsOfTheWholePrefix) {
  const std::vector<int32_t> text(tokens_.begin(), tokens_.begin() + 24);
  const std::vector<float> whole = model_.Logits(text, 1);
  const int64_t vocab = model_.gpt.vocab_size();
  double largest = 0;
  for (const float x : whole) largest = std::max(largest, std::abs(double{x}));
  for (const std::vector<int64_t>& pieces :
       {std::vector<int64_t>(24, 1), {8, 1, 1, 5, 9}, std::vector<int64_t>{24}}) {
    KvCache cache = model_.gpt.NewCache(1, 32);
    for (const int64_t n : pieces) {
      const std::vector<int32_t> piece(text.begin() + cache.length,
                                       text.begin() + cache.length + n);
      const std::vector<float> got =
          model_.gpt.NextLogits(Tensor::FromHost(piece, {1, n}, CpuDevice()), cache)
              .ToHost<float>();
      for (int64_t i = 0; i < vocab; ++i) {
        EXPECT_NEAR(got[i], whole[(cache.length - 1) * vocab + i], kTolerance * largest)
            << cache.length;
      }
    }
  }
}

// Beyond its context a model starts again from the last half of it.
TEST_F(HuggingFaceTest, GeneratesBeyondTheContext) {
  std::vector<int32_t> text(tokens_.begin(), tokens_.begin() + 8), got;
  Generate(model_.gpt, CpuDevice(), text, 60, {.temperature = 0},
           [&](int32_t token) { got.push_back(token); });
  ASSERT_EQ(got.size(), 60U);
  int64_t seen = 8;  // tokens that the model sees
  for (const int32_t token : got) {
    if (seen > 32) seen = 16;
    const std::vector<float> logits = model_.Logits({text.end() - seen, text.end()}, 1);
    const auto last = logits.end() - model_.gpt.vocab_size();
    EXPECT_EQ(std::max_element(last, logits.end()) - last, token) << "at " << text.size();
    text.push_back(token);
    ++seen;
  }
}

TEST_F(HuggingFaceTest, SavedCheckpointHasTheSameTensors) {
  const std::string root = ::testing::TempDir() + "/pando_hf_checkpoint";
  std::filesystem::remove_all(root);
  const RunFolder run = Value(RunFolder::Prepare(root, 0));
  Zero parameters(model_.registry, model_.gpt.units(), {}, nullptr, CpuDevice());
  TensorFileSet weights = Value(TensorFileSet::Open(kFolder));
  ASSERT_TRUE(LoadWeights(&weights, parameters).ok());
  const std::string saved = Value(SaveModelCheckpoint(
      &run, 7, parameters, {{"config.json", GptConfigToJson(model_.gpt.config())}}, {}));

  TensorFileSet ours = Value(TensorFileSet::Open(saved));
  TensorFileSet theirs = Value(TensorFileSet::Open(kFolder));
  std::map<std::string, std::vector<int64_t>> got, want;
  for (const std::string& name : ours.Names()) got[name] = ours.Find(name)->shape;
  for (const std::string& name : theirs.Names()) {
    const std::string prefix = "transformer.";
    EXPECT_EQ(name.rfind(prefix, 0), 0U) << name;
    want[name.substr(prefix.size())] = theirs.Find(name)->shape;
  }
  EXPECT_EQ(got, want);
  for (const auto& [name, shape] : want) {
    std::vector<float> a(ours.Find(name)->elements), b(a.size());
    ASSERT_TRUE(ours.Read<float>(name, 0, absl::MakeSpan(a)).ok());
    ASSERT_TRUE(theirs.Read<float>("transformer." + name, 0, absl::MakeSpan(b)).ok());
    EXPECT_EQ(a, b) << name;
  }

  Model again;
  ASSERT_TRUE(again.Load(saved).ok());
  EXPECT_EQ(again.Logits(tokens_, 2), model_.Logits(tokens_, 2));
  std::filesystem::remove_all(root);
}

/// Writes all tensors of the folder but changed by `change`, and tries to load them.
absl::Status LoadChanged(
    const std::function<void(std::map<std::string, std::vector<int64_t>>&)>& change) {
  TensorFileSet weights = Value(TensorFileSet::Open(kFolder));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const std::string& name : weights.Names()) shapes[name] = weights.Find(name)->shape;
  change(shapes);
  const std::string path = ::testing::TempDir() + "/pando_hf_changed.safetensors";
  std::filesystem::remove(path);
  std::vector<TensorDecl> tensors;
  tensors.reserve(shapes.size());
  for (const auto& [name, shape] : shapes) tensors.push_back({name, DType::kF32, shape});
  OutputFile file = Value(OutputFile::Create(path));
  EXPECT_TRUE(WriteSafetensors(&file, tensors, {},
                               [](const TensorDecl&, int64_t, int64_t count, void* out) {
                                 std::fill_n(static_cast<float*>(out), count, 0.5F);
                                 return absl::OkStatus();
                               })
                  .ok());
  EXPECT_TRUE(file.Finish().ok());
  return Model().Load(path);
}

TEST(LoadWeightsTest, NamesWhatDoesNotFit) {
  EXPECT_TRUE(LoadChanged([](auto&) {}).ok());
  EXPECT_THAT(std::string(LoadChanged([](auto& shapes) {
                            shapes.erase("transformer.h.1.ln_2.bias");
                          }).message()),
              HasSubstr("lack h.1.ln_2.bias"));
  EXPECT_THAT(std::string(LoadChanged([](auto& shapes) {
                            shapes["transformer.wpe.weight"] = {16, 32};
                          }).message()),
              HasSubstr("transformer.wpe.weight is [16, 32], the model's [32, 32]"));
  EXPECT_THAT(std::string(LoadChanged([](auto& shapes) {
                            shapes["transformer.h.2.ln_1.bias"] = {32};
                          }).message()),
              HasSubstr("transformer.h.2.ln_1.bias"));
  // Masks of older versions, and a head that is the token embedding, say nothing new.
  EXPECT_TRUE(LoadChanged([](auto& shapes) {
                shapes["transformer.h.0.attn.bias"] = {1, 1, 32, 32};
                shapes["transformer.h.0.attn.masked_bias"] = {};
                shapes["lm_head.weight"] = {97, 32};
              }).ok());
}

TEST(ConfigTest, RoundTrip) {
  GptConfig config =
      Value(GptConfigFromJson(ReadText(std::string(kFolder) + "/config.json"), "config.json"));
  EXPECT_EQ(config.vocab_size, 97);
  EXPECT_EQ(config.context, 32);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.width, 32);
  EXPECT_TRUE(config.bias);
  EXPECT_EQ(config.layer_norm_eps, 1e-5);
  config.bias = false;
  config.layer_norm_eps = 1e-6;
  const std::string text = GptConfigToJson(config);
  EXPECT_EQ(GptConfigToJson(Value(GptConfigFromJson(text, ""))), text);
  // What transformers reads and has other names for elsewhere.
  const Json json = Json::parse(text);
  const Json theirs = Json::parse(ReadText(std::string(kFolder) + "/config.json"));
  for (const char* key :
       {"architectures", "model_type", "activation_function", "vocab_size", "n_positions",
        "n_layer", "n_head", "n_embd", "n_inner", "tie_word_embeddings"}) {
    EXPECT_EQ(json.at(key), theirs.at(key)) << key;
  }
}

TEST(ConfigTest, RefusesWhatItCannotCompute) {
  const Json good = Json::parse(ReadText(std::string(kFolder) + "/config.json"));
  const auto refused = [&](const std::string& key, const Json& value) {
    Json json = good;
    json[key] = value;
    const auto config = GptConfigFromJson(json.dump(), "the/config.json");
    EXPECT_THAT(std::string(config.status().message()), HasSubstr("the/config.json: ")) << key;
    return std::string(config.status().message());
  };
  EXPECT_THAT(refused("model_type", "bert"), HasSubstr("bert"));
  EXPECT_THAT(refused("model_type", 7), HasSubstr("configuration"));
  EXPECT_THAT(refused("activation_function", "relu"), HasSubstr("relu"));
  EXPECT_THAT(refused("n_inner", 100), HasSubstr("n_inner"));
  EXPECT_THAT(refused("n_head", 5), HasSubstr("5 heads"));
  EXPECT_THAT(refused("n_layer", "two"), HasSubstr("configuration"));
  EXPECT_THAT(refused("n_embd", nullptr), HasSubstr("configuration"));
  EXPECT_THAT(refused("n_layer", -1), HasSubstr("layers"));
  EXPECT_THAT(refused("tie_word_embeddings", false), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(refused("scale_attn_weights", false), HasSubstr("scale_attn_weights"));
  EXPECT_THAT(refused("scale_attn_by_inverse_layer_idx", true), HasSubstr("inverse_layer"));
  EXPECT_THAT(std::string(GptConfigFromJson("[", "the/config.json").status().message()),
              HasSubstr("the/config.json: not a JSON object"));
}

}  // namespace
}  // namespace pando
