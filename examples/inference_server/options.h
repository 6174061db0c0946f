#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace inference_server {

/// What the command line asks for; the same for all processes of a job.
struct Options {
  /// Sizes of batches that are tried, one after the other.
  std::vector<std::size_t> batches = {1, 2, 4, 8, 16, 32};
  /// How long a request waits for company, in ms.
  double max_wait_ms = 2;
  /// Requests that may wait at the server.
  std::size_t max_queued = 4096;
  /// Requests that each client has under way (unless `rate` is set).
  std::int64_t in_flight = 16;
  /// Requests per second of all clients together, at random times; 0: each makes its next request
  /// when it has an answer.
  double rate = 0;
  /// Requests that each client makes for each size.
  std::int64_t requests = 1000;
  /// Of the network.
  std::int64_t width = 1024;
  std::int64_t layers = 4;
  /// That compute, at the server.
  int threads = 1;
  std::int64_t seed = 1;
  /// Folder for what is measured; empty: none.
  std::string output = "inference_server-output";
};

/// A mistake (or --help) is answered on the terminal; the result is then the exit status of the
/// program: 2 (or 0).
std::variant<Options, int> parse_options(int argc, const char* const* argv);

}  // namespace inference_server
