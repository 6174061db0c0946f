#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "sinew/benchmarks/measure.h"

/// The figures of `tools/bench tensors`: GB/s of tensors that cross from one process to another.
/// Our own program and the C++ peers share this header.
namespace sinew::bench {

inline constexpr std::array<std::int64_t, 6> kTensorBytes = {4096,     65536,     1048576,
                                                             16777216, 134217728, 1073741824};

/// Everything that processes of one host can share, or TCP only.
inline constexpr std::string_view kSameHost = "same_host";
inline constexpr std::string_view kNetwork = "network";
/// The same with mutual TLS; only ours has figures of it.
inline constexpr std::string_view kTls = "tls";

inline std::string tensor_figure(std::string_view plane, std::string_view direction,
                                 std::int64_t bytes) {
  return std::string(plane) + "_" + std::string(direction) + "_" + std::to_string(bytes) + "_GBps";
}

/// The names of the figures of a plane, of tensors up to `most_bytes`.
inline std::vector<std::string> plane_figures(
    std::string_view plane, std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max()) {
  std::vector<std::string> names;
  for (const std::string_view direction : {"push", "pull"}) {
    for (const std::int64_t bytes : kTensorBytes) {
      if (bytes <= most_bytes) names.push_back(tensor_figure(plane, direction, bytes));
    }
  }
  return names;
}

/// Those of both planes that all systems have.
inline std::vector<std::string> tensor_figures(
    std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max()) {
  std::vector<std::string> names = plane_figures(kSameHost, most_bytes);
  const std::vector<std::string> more = plane_figures(kNetwork, most_bytes);
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

inline bool wants_plane(const Options& options, std::string_view plane) {
  const std::vector<std::string> names = plane_figures(plane);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return options.wants(name); });
}

/// How often a tensor crosses for one figure: 2 GiB altogether, within limits. Small ones often
/// enough that the start of two programs, which find out about each other and about the cores, is
/// no large part of it.
inline int timed_transfers(const Options& options, std::int64_t bytes) {
  if (options.quick()) return 1;
  constexpr std::int64_t kAltogether = std::int64_t{2} << 30;
  return static_cast<int>(std::clamp<std::int64_t>(kAltogether / bytes, 3, 10000));
}

/// GB/s at the median time of `transfer()`, after a tenth as many, and one, that are not timed.
template <class Transfer>
double measure_GBps(const Options& options, std::int64_t bytes, Transfer&& transfer) {
  transfer();  // it meets cold pages, and pools that have nothing to give yet
  const Latency latency = measure_latency(timed_transfers(options, bytes), transfer);
  return static_cast<double>(bytes) / latency.p50_us / 1e3;
}

/// Measures the figures of a plane. `prepare(bytes)` makes tensors of that size at both ends,
/// `push()` then sends one there, and `pull()` fetches one.
template <class Prepare, class Push, class Pull>
void measure_plane(const Options& options, std::string_view plane, Prepare&& prepare, Push&& push,
                   Pull&& pull) {
  for (const std::int64_t bytes : kTensorBytes) {
    const std::string push_figure = tensor_figure(plane, "push", bytes);
    const std::string pull_figure = tensor_figure(plane, "pull", bytes);
    if (!options.wants(push_figure) && !options.wants(pull_figure)) continue;
    prepare(bytes);
    if (options.wants(push_figure)) {
      options.report(push_figure, measure_GBps(options, bytes, push));
    }
    if (options.wants(pull_figure)) {
      options.report(pull_figure, measure_GBps(options, bytes, pull));
    }
  }
}

}  // namespace sinew::bench
