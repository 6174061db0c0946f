// A rank of the training, or, with --nproc, the program that starts all ranks.

#include <iostream>
#include <variant>

#include "data/open_data.h"
#include "options.h"
#include "sinew/examples/common/ranks.h"
#include "sinew/examples/common/stop_signal.h"
#include "training.h"

namespace {

int train(const examples::CommandLine& line) {
  const auto options =
      std::get<image_classifier::Options>(image_classifier::parse_options(line.words));
  const image_classifier::DataSets data = image_classifier::open_data(options);
  const sinew::ProcessGroup group = examples::join_ranks(options.ranks);
  std::cout << image_classifier::init_text(examples::local_rank(), group.rank()) + "\n"
            << std::flush;
  const auto result = image_classifier::train(group, data, options, std::cout);
  return result.stopped ? examples::stopped_status() : 0;
}

}  // namespace

int main(int argc, char** argv) {
  sinew::init_launch(argc, argv);
  const auto line = examples::CommandLine::of("image_classifier", argc, argv);
  const auto parsed = image_classifier::parse_options(line.words);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  return examples::run_ranks<train>(line, std::get<image_classifier::Options>(parsed).ranks);
}
