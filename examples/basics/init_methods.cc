#include "ATen/ops/ones.h"
#include "concepts.h"
#include "sinew/examples/common/ranks.h"
#include "sinew/groups/process_group.h"

namespace basics {
namespace {

/// Ranks that meet have a sum.
void show(const sinew::ProcessGroup& group, const std::string& method) {
  const at::Tensor tensor = at::ones({1});
  group.all_reduce(tensor);
  print_line(method + ": Rank  " + std::to_string(group.rank()) + "  has data  " + text_of(tensor));
  group.destroy();
}

}  // namespace

void init_methods(int port, const std::string& file) {
  // RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or what Slurm, Open MPI or torchrun set.
  sinew::GroupOptions options;
  sinew::ProcessGroup group = sinew::init_process_group(options);
  options.rank = group.rank();
  options.world_size = group.size();
  examples::say_rank(group.rank());
  show(group, "env://");

  // Rank 0 listens there.
  options.init_method = "tcp://127.0.0.1:" + std::to_string(port);
  show(sinew::init_process_group(options), options.init_method);

  // On a file system that all ranks share.
  options.init_method = "file://" + file;
  show(sinew::init_process_group(options), options.init_method);
}

}  // namespace basics
