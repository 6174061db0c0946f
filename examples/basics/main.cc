// A rank that shows one concept, or the program that starts all ranks.

#include <variant>

#include "concepts.h"
#include "options.h"
#include "sinew/examples/common/ranks.h"

namespace {

// As in the tutorial.
constexpr int kUsualRanks = 2;

int show(const examples::CommandLine& line) {
  const auto options = std::get<basics::Options>(basics::parse_options(line.words));
  if (options.concept_name == "init") {
    basics::init_methods(options.port, options.file);
    return 0;
  }
  const sinew::ProcessGroup group = examples::join_ranks(options.ranks);
  examples::say_rank(group.rank());
  if (options.concept_name == "blocking") basics::blocking(group);
  if (options.concept_name == "non-blocking") basics::non_blocking(group);
  if (options.concept_name == "collectives") basics::collectives(group);
  if (options.concept_name == "subgroup") basics::subgroup(group);
  if (options.concept_name == "ring") basics::ring(group, options.bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  sinew::init_launch(argc, argv);
  const auto line = examples::CommandLine::of("basics", argc, argv);
  const auto parsed = basics::parse_options(line.words);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<basics::Options>(parsed);
  if (options.concept_name == "spawn-failure") {
    basics::spawn_failure(options.ranks.nproc > 0 ? options.ranks.nproc : kUsualRanks);
    return 0;
  }
  return examples::run_ranks<show>(line, options.ranks, kUsualRanks);
}
