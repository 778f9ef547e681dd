#include "dist/store/http_post.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "absl/time/clock.h"

namespace pando {
namespace {

using OnData = std::function<bool(absl::string_view)>;

size_t Hand(const char* data, size_t one, size_t size, void* on_data) {
  return (*static_cast<const OnData*>(on_data))({data, size}) ? one * size : 0;
}

/// Once per process, before any thread uses curl.
bool StartCurl() { return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; }

}  // namespace

HttpAnswer Post(const HttpRequest& request, absl::Time deadline, const OnData& on_data) {
  static const bool started = StartCurl();
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(
      started ? curl_easy_init() : nullptr, &curl_easy_cleanup);
  if (curl == nullptr) return {.error = "libcurl does not start"};
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  list = curl_slist_append(list, "Expect:");  // no question before the body
  if (!request.authorization.empty()) {
    list = curl_slist_append(list, ("Authorization: " + request.authorization).c_str());
  }
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(list,
                                                                            &curl_slist_free_all);
  const auto left = std::max<int64_t>(1, absl::ToInt64Milliseconds(deadline - absl::Now()));
  CURL* c = curl.get();
  curl_easy_setopt(c, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(c, CURLOPT_POSTFIELDS, request.body.data());
  curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, static_cast<long>(left));
  curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(c, CURLOPT_NOPROXY, "*");  // a store is in the cluster
  curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, &Hand);
  curl_easy_setopt(c, CURLOPT_WRITEDATA, &on_data);
  if (!request.ca_file.empty()) curl_easy_setopt(c, CURLOPT_CAINFO, request.ca_file.c_str());
  const CURLcode code = curl_easy_perform(c);
  HttpAnswer answer;
  long status = 0;  // NOLINT(google-runtime-int): curl's
  curl_off_t sent = 0;
  curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(c, CURLINFO_SIZE_UPLOAD_T, &sent);
  answer.status = static_cast<int>(status);
  answer.sent = sent > 0;
  if (code != CURLE_OK) answer.error = curl_easy_strerror(code);
  return answer;
}

}  // namespace pando
