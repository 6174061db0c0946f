#include "sinew/sinew.h"

namespace app {
class Net {
 public:
  explicit Net(std::int64_t size);
  at::Tensor forward(const at::Tensor& input);
  std::vector<at::Tensor> parameters();
  void train(bool on);
  void to(c10::Device device);
};
}  // namespace app

at::Tensor call(const sinew::Worker& worker, const at::Tensor& input) {
  sinew::RemoteModule<app::Net> net(worker, "server", 64);
  return net.forward(input);
}
SINEW_MODULE(app::Net, (std::int64_t));
