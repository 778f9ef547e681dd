#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "dist/hetero/simulate.h"

namespace pando {

/// TOML:
///
///     network_gbit = 100        # in and out of each node
///     [[node]]
///     gpu = "A100-80"           # of the catalogue
///     gpus = 4
///     count = 2                 # nodes like this; default: 1
///     memory_gb = 40            # of each GPU that may be used; default: all
///     link_gbit = 256           # between its GPUs, one way; default: the data sheet's
///
/// Instead of gpu, profile = "file" names what `pando profile` has measured on such a device.
/// InvalidArgument, naming node and field, for what isn't that.
absl::StatusOr<Cluster> ParseCluster(const std::string& text);

}  // namespace pando
