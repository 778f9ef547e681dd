#include "models/hugging_face.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/error.h"

namespace pando {
namespace {
using Json = nlohmann::ordered_json;
}  // namespace

std::string GptConfigToJson(const GptConfig& config) {
  const Json json = {{"architectures", {"GPT2LMHeadModel"}},
                     {"model_type", "gpt2"},
                     {"activation_function", "gelu_new"},
                     {"vocab_size", config.vocab_size},
                     {"n_positions", config.context},
                     {"n_ctx", config.context},
                     {"n_layer", config.layers},
                     {"n_head", config.heads},
                     {"n_embd", config.width},
                     {"n_inner", nullptr},
                     {"resid_pdrop", config.dropout},
                     {"embd_pdrop", config.dropout},
                     {"attn_pdrop", config.dropout},
                     {"layer_norm_epsilon", config.layer_norm_eps},
                     {"tie_word_embeddings", true},
                     {"bias", config.bias}};
  return json.dump(2) + "\n";
}

absl::StatusOr<GptConfig> GptConfigFromJson(const std::string& text, const std::string& name) {
  const auto wrong = [&name](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", why));
  };
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return wrong("not a JSON object");
  try {
    if (json.value("model_type", "gpt2") != "gpt2") {
      return wrong(absl::StrCat("a model of type ", json["model_type"].get<std::string>(),
                                ", but only gpt2 is known"));
    }
    const std::string activation = json.value("activation_function", "gelu_new");
    if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
      return wrong(absl::StrCat("activation ", activation, ", but Pando's GPT has gelu_new"));
    }
    // What changes the model's function, and what it must be: GPT-2's value.
    for (const auto& [key, gpt2] :
         {std::pair("tie_word_embeddings", true), std::pair("scale_attn_weights", true),
          std::pair("scale_attn_by_inverse_layer_idx", false),
          std::pair("add_cross_attention", false)}) {
      if (json.value(key, gpt2) != gpt2) {
        return wrong(absl::StrCat(key, " is not ", gpt2 ? "true" : "false",
                                  ", but only GPT-2 as it was published is known"));
      }
    }
    GptConfig config;
    config.vocab_size = json.at("vocab_size");
    config.context = json.at("n_positions");
    config.layers = json.at("n_layer");
    config.heads = json.at("n_head");
    config.width = json.at("n_embd");
    config.layer_norm_eps = json.value("layer_norm_epsilon", 1e-5);
    config.bias = json.value("bias", true);
    if (json.contains("n_inner") && !json["n_inner"].is_null() &&
        json["n_inner"] != 4 * config.width) {
      return wrong("n_inner is not four times n_embd");
    }
    // Dropout is a choice of the training run, not of the weights.
    config.Check();
    return config;
  } catch (const Json::exception& e) {
    return wrong(absl::StrCat("not a GPT-2 configuration: ", e.what()));
  } catch (const InvalidArgument& e) {
    return wrong(e.what());
  }
}

}  // namespace pando
