#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "sinew/rpc/transport/credentials.h"

namespace sinew::bench {

/// Credentials with which all processes of a benchmark show the same certificate, its own
/// authority, for localhost: made by the openssl command, valid for a day. Throws when there is
/// none. Make it before the processes are forked.
inline Credentials own_certificate() {
  std::string folder = (std::filesystem::temp_directory_path() / "sinew-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    throw std::runtime_error("cannot make a folder for a certificate in " + folder);
  }
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj "
      "/CN=bench -addext subjectAltName=DNS:server,DNS:client,IP:127.0.0.1 -keyout '" +
      folder + "/key' -out '" + folder + "/certificate' 2> /dev/null";
  const bool made = std::system(command.c_str()) == 0;
  const auto read = [&](const char* name) {
    std::ifstream file(folder + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const TlsPem pem{read("certificate"), read("certificate"), read("key")};
  std::filesystem::remove_all(folder);
  if (!made) throw std::runtime_error("openssl made no certificate; is it installed?");
  return Credentials::mutual_tls(pem);
}

}  // namespace sinew::bench
