#pragma once

#include <string>

#include "dist/communicator/communicator.h"

namespace pando {

/// What `text` is on rank 0, on all ranks. A null communicator is one rank. Throws PeerLost.
std::string BroadcastText(Communicator* communicator, const std::string& text);

}  // namespace pando
