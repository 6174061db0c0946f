// Calls, groups and processes of the installed package.

#include <ATen/ATen.h>
#include <torch/nn.h>

#include <sinew/groups/process_group.h>
#include <sinew/launch/spawn.h>
#include <sinew/parallel/distributed_data_parallel.h>
#include <sinew/sinew.h>

#include <stdexcept>
#include <string>

namespace app {
at::Tensor twice(const at::Tensor& input) { return input * 2; }

void rank_main(int rank, const std::string& backend) {
  sinew::GroupOptions options;
  options.backend = backend;
  const sinew::ProcessGroup group = sinew::init_process_group(options);
  sinew::parallel::DistributedDataParallel model(torch::nn::Linear(3, 1), group);
  model.forward(at::full({1, 3}, rank + 1.0)).sum().backward();
  const at::Tensor gradient = model.module()->weight.grad();
  if (!gradient.equal(at::full({1, 3}, 1.5))) throw std::runtime_error("wrong gradients");
}
}  // namespace app
SINEW_METHOD(app::twice);

int main(int argc, char** argv) {
  sinew::init_launch(argc, argv);
  sinew::WorkerOptions options;
  options.name = "alone";
  options.methods.add<&app::twice>();
  options.init_method = argv[1];
  options.rank = 0;
  options.world_size = 1;
  sinew::Worker worker = sinew::init_rpc(options);
  const at::Tensor six = worker.peer("alone").call<&app::twice>(at::full({2}, 3.0));
  worker.shutdown();
  if (!six.equal(at::full({2}, 6.0))) return 1;
  if (argc > 2) sinew::spawn(&app::rank_main, 2, {}, argv[2]);
  return 0;
}
