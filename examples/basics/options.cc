#include "options.h"

namespace basics {

std::variant<Options, int> parse_options(const std::vector<std::string>& words) {
  Options options;
  CLI::App app("What processes of a group can do, one concept at a time.", "basics");
  app.add_option("concept", options.concept_name,
                 "blocking: rank 0 sends a number to rank 1, which waits for it\n"
                 "non-blocking: the same, and both go on meanwhile\n"
                 "collectives: each operation that all ranks take part in\n"
                 "subgroup: a group of ranks 0 and 1, whatever the others do\n"
                 "init: three ways to meet: environment, address, file\n"
                 "ring: an all-reduce of sends and receives, beside all_reduce\n"
                 "spawn-failure: what a failure of a process looks like that was spawned")
      ->required()
      ->check(CLI::IsMember({"blocking", "non-blocking", "collectives", "subgroup", "init", "ring",
                             "spawn-failure"}));
  examples::add_rank_flags(app, options.ranks);
  examples::add_whole(app, "--port", options.port, 1, 65'535, "init: where ranks meet by address");
  app.add_option("--file", options.file,
                 "init: the file by which they meet, which is not there yet")
      ->capture_default_str();
  examples::add_whole(app, "--bytes", options.bytes, 4, 1LL << 32, "ring: size of the tensor");
  const examples::Parsed parsed = examples::parse(app, words);
  if (!parsed.go_on) return parsed.status;
  return options;
}

}  // namespace basics
