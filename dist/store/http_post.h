#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace pando {

struct HttpRequest {
  std::string url;
  std::string authorization;  ///< the header's value; empty: none
  std::string body;           ///< JSON
  std::string ca_file;        ///< certificates to trust for https; empty: the system's
};

struct HttpAnswer {
  std::string error;  ///< why there is none; empty if there is
  int status = 0;
  bool sent = false;  ///< whether the request may have reached the other side
};

/// Posts the request and hands the answer's body over as it comes, until `on_data` returns false.
/// Gives up at the deadline. Any thread may call this.
HttpAnswer Post(const HttpRequest& request, absl::Time deadline,
                const std::function<bool(absl::string_view)>& on_data);

}  // namespace pando
