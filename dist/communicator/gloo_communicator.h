#pragma once

#include <memory>

#include "dist/communicator/communicator.h"
#include "dist/communicator/gloo_mesh.h"

namespace pando {

/// Forms a communicator over TCP (gloo's transport) for spans of `device`'s memory; where that is
/// not the host's, they go through pinned host memory. All ranks call this with the same prefix,
/// secret and size. bf16 and f16 are added in f32 and rounded at every hop. Throws what GlooMesh
/// throws.
std::unique_ptr<Communicator> NewGlooCommunicator(const GlooOptions& options, Device& device);

}  // namespace pando
