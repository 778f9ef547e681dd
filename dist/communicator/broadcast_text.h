#pragma once

#include <string>

#include "dist/communicator/communicator.h"

namespace pando {

/// What `text` is on rank `root`, on all ranks. A null communicator is one rank. Throws PeerLost.
std::string BroadcastText(Communicator* communicator, const std::string& text, int root = 0);

}  // namespace pando
