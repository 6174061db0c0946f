// Mistakes with optimizers and modules.
#include <cstdint>
#include <vector>

#include "sinew/sinew.h"

namespace app {
struct LionOptions {
  double lr = 1e-4;
};
class Net {
 public:
  explicit Net(std::int64_t size);
  at::Tensor forward(const at::Tensor& input);
  std::vector<at::Tensor> parameters() const;
  void train(bool on);
  void to(c10::Device device);
};
}  // namespace app

void make(const sinew::Worker& worker, const std::vector<sinew::RRef<at::Tensor>>& parameters) {
  // error: Sinew: LBFGS cannot be distributed
  sinew::optim::DistributedOptimizer lbfgs(worker, parameters, sinew::optim::LbfgsOptions());

  // error: Sinew: no optimizer with these options has a name here
  sinew::optim::DistributedOptimizer unnamed_optimizer(worker, parameters, app::LionOptions());
}

at::Tensor call(const sinew::Worker& worker, const at::Tensor& input) {
  sinew::RemoteModule<app::Net> module_named_after_its_use(worker, "server", 64);
  // error: Sinew: this module has no name here: write SINEW_MODULE
  return module_named_after_its_use.forward(input);
}
// That this comes too late the compilers say in words of their own.
// error: sinew::kService
SINEW_MODULE(app::Net, (std::int64_t));
