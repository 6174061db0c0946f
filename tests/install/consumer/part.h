#pragma once

#include <ATen/ATen.h>
#include <sinew/rpc/rpc.h>
#include <sinew/rref/remote.h>

#include <cstdint>
#include <string>

namespace app {
inline at::Tensor twice(const at::Tensor& input) { return input * 2; }

struct Counter {
  std::int64_t add(std::int64_t amount) { return total += amount; }
  std::int64_t total = 0;
};

inline sinew::WorkerOptions member(const std::string& name, int rank, const char* meeting_place) {
  sinew::WorkerOptions options;
  options.name = name;
  options.rank = rank;
  options.world_size = 2;
  options.init_method = meeting_place;
  return options;
}
}  // namespace app
SINEW_METHOD(app::twice);
SINEW_SERVICE(app::Counter, (), add);
