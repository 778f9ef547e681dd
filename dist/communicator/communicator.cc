#include "dist/communicator/communicator.h"

namespace pando {

const char* Name(CollectiveKind kind) {
  constexpr const char* kNames[kCollectiveKinds] = {
      "all-reduce", "reduce-scatter", "all-gather", "broadcast", "send", "receive", "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace pando
