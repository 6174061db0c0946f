#pragma once

#include <cstdint>
#include <vector>

#include "classifier.h"
#include "sinew/sinew.h"

namespace inference_server {

/// What a client does.
struct Load {
  std::int64_t requests = 0;
  /// Requests under way, when there is no rate.
  std::int64_t in_flight = 1;
  /// Requests per second; 0: the next one is made when there is an answer.
  double rate = 0;
  std::int64_t width = 0;
  std::int64_t seed = 0;
};

/// What has become of the requests of a client, or of several.
struct Answers {
  /// Milliseconds from when a request was to be made to its answer.
  std::vector<double> latencies_ms;
  /// Requests that the server had no room for.
  std::int64_t refused = 0;
};

/// Makes requests as `load` says, and waits for all answers. Throws sinew::RpcError when one fails
/// otherwise than for want of room.
Answers make_requests(const sinew::RRef<Classifier>& classifier, const Load& load);

}  // namespace inference_server

SINEW_STRUCT(inference_server::Load, requests, in_flight, rate, width, seed);
SINEW_STRUCT(inference_server::Answers, latencies_ms, refused);
SINEW_METHOD(inference_server::make_requests);
