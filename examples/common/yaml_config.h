#pragma once

#include "CLI/CLI.hpp"

namespace examples {

/// Adds --config: a YAML file whose keys are the long names of the flags of `app`, as in
/// `batch: 64`. Flags of the command line win. To be called after all flags were added. A file that
/// is no such map, or has a key that is no flag, ends the parsing with an error that names the
/// file, the line and the nearest flag.
void add_yaml_config(CLI::App& app);

}  // namespace examples
