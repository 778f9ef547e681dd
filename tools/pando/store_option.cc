#include "tools/pando/store_option.h"

#include <cstdlib>

#include "dist/launch/worker_environment.h"
#include "tools/pando/saved_model.h"

namespace pando {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

StoreOptions StoreFromEnvironment(const std::string& endpoints) {
  StoreOptions store;
  if (!endpoints.empty()) store.endpoints = ValueOrThrow(ParseEndpoints(endpoints));
  store.secret = Variable(kSecretVariable);
  store.user = Variable("PANDO_STORE_USER");
  store.password = Variable("PANDO_STORE_PASSWORD");
  store.ca_file = Variable("PANDO_STORE_CA");
  return store;
}

}  // namespace pando
