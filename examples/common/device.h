#pragma once

#include <string>

#include "c10/core/Device.h"

namespace examples {

/// This process's number among those of its host; 0 where nobody says.
int local_rank();

/// What --device (device_flag.h) means to this process. "cpu", or "cuda": of the GPUs that it sees
/// the one of its local rank, so that each process of a host has its own where there are enough.
/// Throws std::runtime_error that says so where it sees none.
c10::Device device_of(const std::string& name);

}  // namespace examples
