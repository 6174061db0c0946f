#pragma once

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace sinew::internal {

/// The services that a worker has over gRPC.
const std::vector<std::string>& served_services();

/// The files in which they are declared, under their own names, and those that these import. A pool
/// apart from the program's, whose other protos are not served.
const google::protobuf::DescriptorPool& served_files();

}  // namespace sinew::internal
