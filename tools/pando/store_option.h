#pragma once

#include <string>

#include "dist/store/store_client.h"

namespace pando {

/// What the environment says of a store: PANDO_STORE_SECRET of an embedded one; PANDO_STORE_USER,
/// PANDO_STORE_PASSWORD and PANDO_STORE_CA (a file) of an etcd. Secrets are no options, as
/// everybody on a machine sees those. `endpoints` as ParseEndpoints takes them; empty: none. Throws
/// InvalidArgument.
StoreOptions StoreFromEnvironment(const std::string& endpoints);

}  // namespace pando
