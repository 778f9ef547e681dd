#include "dist/communicator/broadcast_text.h"

#include <vector>

#include "engine/tensor.h"

namespace pando {

std::string BroadcastText(Communicator* communicator, const std::string& text, int root) {
  if (communicator == nullptr) return text;
  Device& device = communicator->device();
  Tensor length = Tensor::FromHost(std::vector<int64_t>{static_cast<int64_t>(text.size())}, {1},
                                   device, "length of a text");
  communicator->Broadcast(TypedSpan(length), root)->Wait();
  // A character each, as collectives know no bytes: texts are short.
  std::vector<int32_t> characters(static_cast<size_t>(length.ToHost<int64_t>()[0]));
  if (communicator->rank() == root) characters.assign(text.begin(), text.end());
  Tensor there =
      Tensor::FromHost(characters, {static_cast<int64_t>(characters.size())}, device, "a text");
  communicator->Broadcast(TypedSpan(there), root)->Wait();
  characters = there.ToHost<int32_t>();
  return {characters.begin(), characters.end()};
}

}  // namespace pando
