#pragma once

#include <string>

#include "sinew/examples/common/flags.h"

namespace examples {

/// --device, for device_of() (device.h). `what`: what of the program is on it.
inline void add_device_flag(CLI::App& app, std::string& device, const std::string& what) {
  app.add_option("--device", device,
                 "Where " + what +
                     ": cpu, or cuda: of the GPUs that a process sees the one of its local rank")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
}

}  // namespace examples
