#pragma once

#include <ATen/ATen.h>
#include <sinew/sinew.h>

#include <cstdint>
#include <vector>

#define APP_VISIBLE __attribute__((visibility("default")))

namespace app {
// A list, so that its signature asks which types it is within.
struct APP_VISIBLE Tree {
  double weight = 1;
  std::vector<Tree> branches;
};

APP_VISIBLE double weigh(const Tree& tree);
APP_VISIBLE at::Tensor scale(const at::Tensor& input, const at::Tensor& factor);
APP_VISIBLE void refuse();

class APP_VISIBLE Counter {
 public:
  std::int64_t add(std::int64_t amount);

 private:
  std::int64_t total_ = 0;
};
}  // namespace app
SINEW_STRUCT(app::Tree, weight, branches);
SINEW_METHOD(app::weigh, app::scale, app::refuse);
SINEW_SERVICE(app::Counter, (), add);
