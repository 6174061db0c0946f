#include <ATen/ATen.h>
#include <sinew/sinew.h>

namespace app {
at::Tensor twice(const at::Tensor& input) { return input * 2; }
}  // namespace app
SINEW_METHOD(app::twice);

int main(int, char** argv) {
  sinew::WorkerOptions options;
  options.name = "alone";
  options.methods.add<&app::twice>();
  options.init_method = argv[1];
  options.rank = 0;
  options.world_size = 1;
  sinew::Worker worker = sinew::init_rpc(options);
  const at::Tensor six = worker.rpc_sync<&app::twice>("alone", at::full({2}, 3.0));
  worker.shutdown();
  return six.equal(at::full({2}, 6.0)) ? 0 : 1;
}
