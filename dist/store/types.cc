#include "dist/store/types.h"

namespace pando {

KeyRange KeyRange::Prefix(const std::string& prefix) {
  std::string end = prefix;
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xFF) end.pop_back();
  if (!end.empty()) ++end.back();
  return {prefix, end};
}

}  // namespace pando
