#include "common/address_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace examples {

void tell_address(const sinew::Worker& worker) {
  const char* const file = std::getenv("SINEW_EXAMPLES_ADDRESS_FILE");
  if (file == nullptr || *file == '\0') return;
  // In one piece: it is read at any time.
  const std::string made = std::string(file) + ".new";
  std::ofstream stream(made);
  stream << worker.address() << " " << worker.name() << "\n";
  stream.close();
  std::error_code error;
  if (stream) std::filesystem::rename(made, file, error);
  if (!stream || error) {
    throw std::runtime_error("SINEW_EXAMPLES_ADDRESS_FILE: cannot write " + std::string(file));
  }
}

}  // namespace examples
