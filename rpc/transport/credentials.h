#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace sinew {

/// Paths of PEM files. Every worker both accepts and opens connections, so it needs all three.
struct TlsFiles {
  /// Certificates of the authorities whose signature on a peer's certificate counts. This worker's
  /// own certificate must be signed by one of them as well.
  std::string ca;
  /// This worker's certificate, followed by intermediate ones if there are any.
  std::string certificate;
  /// Its private key, not encrypted.
  std::string key;
};

/// The same as TlsFiles, as PEM text in memory.
struct TlsPem {
  std::string ca;
  std::string certificate;
  std::string key;
};

/// How workers prove to each other who they are, and whether others can read along. All workers of
/// a job use the same kind. A value type; immutable, so thread-safe.
///
///     const sinew::TlsFiles files{"ca.pem", "worker.pem", "worker.key"};
///     options.credentials = sinew::Credentials::mutual_tls(files);
///
/// Files are read again while the worker runs, for each connection that it opens, and every second
/// for those that it accepts: renewed certificates, and new authorities, need no restart.
class Credentials {
 public:
  /// No encryption and no proof of identity; loopback addresses only. Starting on or connecting to
  /// any other address fails with kPermissionDenied.
  static Credentials insecure();
  /// No encryption and no proof of identity, on any address: every process that reaches the port
  /// can call every method.
  static Credentials insecure_on_any_network();
  /// TLS in which the accepting side shows its certificate. Callers stay anonymous.
  static Credentials tls(TlsFiles files);
  static Credentials tls(TlsPem pem);
  /// TLS in which both sides must show a certificate that an authority of the other's signed.
  static Credentials mutual_tls(TlsFiles files);
  static Credentials mutual_tls(TlsPem pem);
  /// Mutual TLS among all who know the job's token (WorkerOptions::job_token), without files: each
  /// worker makes its certificate itself, by an authority that follows from the token. A name
  /// proves no more than that its owner knows the token. SINEW_JOB_TLS=1 in the environment, as
  /// sinew-run
  /// --tls sets it, puts this in the place of insecure().
  static Credentials job_tls();

  bool loopback_only() const { return kind_ == Kind::kInsecure; }
  /// Whether connections are encrypted and the accepting side proves who it is.
  bool uses_tls() const { return kind_ != Kind::kInsecure && kind_ != Kind::kInsecureAnywhere; }
  /// Whether both ends of a connection know who the other one is.
  bool proves_callers() const { return kind_ == Kind::kMutualTls; }
  /// Whether they are job_tls(), which take effect by for_worker().
  bool is_of_job() const { return kind_ == Kind::kJobTls; }
  /// job_tls() for a worker that is found at those hosts. Errors: as Authority::issue() has them.
  static absl::StatusOr<Credentials> for_worker(const std::string& token, const std::string& job,
                                                const std::string& worker,
                                                const std::vector<std::string>& hosts);

  /// kInvalidArgument, naming the file, when one is missing or not what it should be, when key and
  /// certificate do not belong together, or when none of the authorities signed the certificate;
  /// kFailedPrecondition, naming file and date, when the certificate or an authority that it needs
  /// has expired or is not valid yet.
  absl::Status check() const;

  /// For the transport. Errors as in check().
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> channel_credentials() const;
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> server_credentials() const;

 private:
  enum class Kind { kInsecure, kInsecureAnywhere, kTls, kMutualTls, kJobTls };
  enum class Source { kFiles, kMemory };

  explicit Credentials(Kind kind) : kind_(kind) {}
  Credentials(Kind kind, Source source, TlsFiles texts)
      : kind_(kind), source_(source), texts_(std::move(texts)) {}

  /// Reads and checks the files.
  absl::StatusOr<TlsPem> load() const;

  Kind kind_;
  Source source_ = Source::kMemory;
  /// Paths or PEM texts, as source_ says.
  TlsFiles texts_;
};

}  // namespace sinew
