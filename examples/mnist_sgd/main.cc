// A rank of the training, or, with --nproc, the program that starts all ranks.

#include <iostream>
#include <variant>

#include "options.h"
#include "sinew/examples/common/ranks.h"
#include "sinew/examples/common/stop_signal.h"
#include "training.h"

namespace {

int train(const examples::CommandLine& line) {
  const auto options = std::get<mnist_sgd::Options>(mnist_sgd::parse_options(line.words));
  const examples::ImageFolder data = examples::load_images(options.data);
  const sinew::ProcessGroup group = examples::join_ranks(options.ranks);
  examples::say_rank(group.rank());
  const auto result = mnist_sgd::train(group, data, options, std::cout);
  return result.stopped ? examples::stopped_status() : 0;
}

}  // namespace

int main(int argc, char** argv) {
  sinew::init_launch(argc, argv);
  const auto line = examples::CommandLine::of("mnist_sgd", argc, argv);
  const auto parsed = mnist_sgd::parse_options(line.words);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<mnist_sgd::Options>(parsed);
  return examples::guarded(line.program, [&] {
    examples::device_of(options.device);  // or it says why not, before ranks are started
    return examples::run_ranks<train>(line, options.ranks);
  });
}
