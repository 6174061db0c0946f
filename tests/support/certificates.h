#pragma once

#include <string>
#include <vector>

#include "sinew/rpc/transport/credentials.h"
#include "sinew/tests/support/temporary_folder.h"

namespace sinew::testing {

/// From when to when a certificate is valid, as "20200101000000Z". Empty: from now for two days.
struct Validity {
  std::string from;
  std::string until;

  static Validity expired() { return {"20200101000000Z", "20210101000000Z"}; }
  static Validity in_the_future() { return {"20900101000000Z", "20910101000000Z"}; }
};

/// A folder with certificates, made with the openssl command. It begins with two authorities, "ca"
/// and "other-ca". Failures throw std::runtime_error.
class Certificates {
 public:
  Certificates();

  std::string path(const std::string& name) const { return folder_.file(name); }

  /// A certificate in files named after `name`, which is its common name, with `names` as
  /// alternative ones; empty: "DNS:<name>,IP:127.0.0.1". The files trust the authority "ca",
  /// whoever signed.
  TlsFiles issue(const std::string& name, const std::string& names = "",
                 const std::string& signer = "ca", const Validity& validity = {}) const;
  /// An authority under another one.
  void issue_authority(const std::string& name, const std::string& signer,
                       const Validity& validity = {}) const;
  /// Writes the PEM files one behind the other to a file `name`. Returns its path.
  std::string bundle(const std::string& name, const std::vector<std::string>& files) const;

  static std::string read(const std::string& file);

 private:
  void request(const std::string& name, const std::string& extensions) const;
  void sign(const std::string& name, const std::string& signer, const Validity& validity) const;

  const TemporaryFolder folder_;
};

}  // namespace sinew::testing
