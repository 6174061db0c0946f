// Calls, a struct and a reference: what most programs do, built in several ways. Its argument says
// where workers meet.

// First: without it what else LibTorch 1.13 has is no C++20 to clang.
#include <ATen/core/ivalue.h>

#include <ATen/ATen.h>
#include <sinew/sinew.h>
#include <sinew/version.h>

#include <cstdint>
#include <iostream>

#if SINEW_VERSION < 1000 || SINEW_VERSION != SINEW_VERSION_MINOR * 1000 + SINEW_VERSION_PATCH
#error "SINEW_VERSION is wrong"
#endif

namespace app {
struct Settings {
  double factor = 1;
  std::int64_t seed = 0;
};

at::Tensor scaled(const at::Tensor& input, const Settings& settings) {
  return input * settings.factor;
}

struct Counter {
  std::int64_t add(std::int64_t amount) { return total += amount; }
  std::int64_t total = 0;
};
}  // namespace app
SINEW_STRUCT(app::Settings, factor, seed);
SINEW_METHOD(app::scaled);
SINEW_SERVICE(app::Counter, (), add);

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  sinew::WorkerOptions options;
  options.name = "alone";
  options.methods = sinew::serve<app::Counter>().add<&app::scaled>();
  options.init_method = argv[1];
  options.rank = 0;
  options.world_size = 1;
  sinew::Worker worker = sinew::init_rpc(options);
  const at::Tensor six =
      worker.peer("alone").call<&app::scaled>(at::full({2}, 3.0), app::Settings{2.0, 7});
  const auto counter = worker.peer("alone").remote<app::Counter>();
  const std::int64_t total = counter.call<&app::Counter::add>(42);
  worker.shutdown();
  if (!six.equal(at::full({2}, 6.0)) || total != 42) return 1;
  std::cout << "Sinew " << SINEW_VERSION_STRING << ", C++ " << __cplusplus << "\n";
  return 0;
}
