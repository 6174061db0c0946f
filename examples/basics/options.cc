#include "options.h"

namespace basics {

std::variant<Options, int> parse_options(const std::vector<std::string>& words) {
  Options options;
  CLI::App app("What processes of a group can do, one concept at a time.", "basics");
  app.require_subcommand(1);
  app.fallthrough();
  examples::add_rank_flags(app, options.ranks);
  const auto add = [&](const std::string& name, const std::string& help) {
    CLI::App* concept_app = app.add_subcommand(name, help);
    concept_app->callback([&options, name] { options.concept_name = name; });
    return concept_app;
  };
  add("blocking", "Rank 0 sends a number to rank 1, which waits for it");
  add("non-blocking", "The same, and both go on meanwhile");
  add("collectives", "Each operation that all ranks take part in");
  add("subgroup", "A group of ranks 0 and 1, whatever the others do");
  CLI::App* init = add("init", "Three ways to meet: environment, address, file");
  examples::add_whole(*init, "--port", options.port, 1, 65'535, "Where the ranks meet by address");
  init->add_option("--file", options.file, "The file by which they meet, which is not there yet")
      ->capture_default_str();
  CLI::App* ring = add("ring", "An all-reduce of sends and receives, beside all_reduce");
  examples::add_whole(*ring, "--bytes", options.bytes, 4, 1LL << 32, "Size of the tensor");
  add("spawn-failure", "What a failure of a process looks like that was spawned");
  const examples::Parsed parsed = examples::parse(app, words);
  if (!parsed.go_on) return parsed.status;
  return options;
}

}  // namespace basics
