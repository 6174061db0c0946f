#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/transport/credentials.h"

struct evp_pkey_st;  // OpenSSL's.
struct x509_st;

namespace sinew::internal {

/// A certificate authority of one job, and its private key. Certificates name the worker (a DNS
/// name among the subject alternative ones), the hosts where it is found, and the job (the URI
/// job_uri()). Immutable, so thread-safe.
class Authority {
 public:
  /// With a key that is drawn (ECDSA, P-256); valid for `days` from now on.
  static absl::StatusOr<Authority> make(const std::string& job, int days);
  /// Both in PEM. kInvalidArgument: they are not, or do not belong together, or it names no job.
  static absl::StatusOr<Authority> load(const std::string& certificate, const std::string& key);
  /// The same one for all that know the token of the job (Ed25519 by HMAC-SHA256 of it).
  static absl::StatusOr<Authority> of_token(const std::string& token, const std::string& job);

  struct Subject {
    std::string worker;
    /// Names and addresses.
    std::vector<std::string> hosts;
  };
  /// A certificate with a key of its own, for `days` from now on. kInvalidArgument: a name or a
  /// host that cannot be one.
  absl::StatusOr<TlsPem> issue(const Subject& subject, int days) const;

  /// In PEM.
  std::string certificate() const;
  std::string key() const;
  const std::string& job() const { return job_; }

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
    void operator()(x509_st* certificate) const;
  };
  using Key = std::unique_ptr<evp_pkey_st, Free>;
  using Certificate = std::unique_ptr<x509_st, Free>;
  Authority(std::string job, Key key, Certificate certificate);
  static absl::StatusOr<Authority> self_signed(const std::string& job, Key key, int days);

  std::string job_;
  Key key_;
  Certificate certificate_;
};

/// What certificates of a job's workers have among their names: "sinew:job/NAME", with
/// percent-encoding.
std::string job_uri(absl::string_view job);
/// Whether a name of a certificate is that of a job.
bool is_job_uri(absl::string_view name);

/// For people: subject, names, dates, whose signature; a line each. kInvalidArgument: it is no
/// certificate in PEM.
absl::StatusOr<std::string> describe_certificate(const std::string& pem);

}  // namespace sinew::internal
