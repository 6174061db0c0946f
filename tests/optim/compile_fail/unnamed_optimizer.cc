#include "sinew/sinew.h"

namespace app {
struct LionOptions {
  double lr = 1e-4;
};
}  // namespace app

void make(const sinew::Worker& worker, const std::vector<sinew::RRef<at::Tensor>>& parameters) {
  sinew::optim::DistributedOptimizer optimizer(worker, parameters, app::LionOptions());
}
