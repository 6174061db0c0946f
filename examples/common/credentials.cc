#include "common/credentials.h"

#include <cstdlib>
#include <stdexcept>

namespace examples {
namespace {

constexpr char kCertificates[] = "SINEW_EXAMPLES_CERTIFICATES";
constexpr char kTrustedNetwork[] = "SINEW_EXAMPLES_TRUSTED_NETWORK";

// Variables that are empty are those of a file that leaves them open.
std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

bool is_network_trusted() {
  const std::string value = value_of(kTrustedNetwork);
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  throw std::invalid_argument(std::string(kTrustedNetwork) + " is '" + value +
                              "'; set it to 1, or not at all");
}

sinew::Credentials credentials_of(const std::string& worker) {
  const std::string folder = value_of(kCertificates);
  const bool trusted = is_network_trusted();
  if (!folder.empty() && trusted) {
    throw std::invalid_argument(std::string(kCertificates) + " and " + kTrustedNetwork +
                                " are both set; leave one out");
  }
  if (trusted) return sinew::Credentials::insecure_on_any_network();
  if (folder.empty()) return sinew::Credentials::insecure();
  const std::string own = folder + "/" + worker;
  return sinew::Credentials::mutual_tls(
      sinew::TlsFiles{folder + "/ca.pem", own + ".pem", own + ".key"});
}

}  // namespace examples
