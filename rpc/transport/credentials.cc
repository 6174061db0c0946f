#include "sinew/rpc/transport/credentials.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/transport/authority.h"

namespace sinew {
namespace {

using CertificatePtr = std::unique_ptr<X509, void (*)(X509*)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using BioPtr = std::unique_ptr<BIO, int (*)(BIO*)>;

// How often files are looked at for connections that come in.
constexpr unsigned int kReadAgainSeconds = 1;

// Far more than any chain of certificates has; keeps a wrong path from being read whole.
constexpr std::size_t kMaxPemBytes = std::size_t{4} << 20;

absl::StatusOr<std::string> read_file(const std::string& path, const std::string& role) {
  std::ifstream file(path, std::ios::binary);
  std::string content;
  if (file) {
    content.resize(kMaxPemBytes);
    file.read(content.data(), static_cast<std::streamsize>(content.size()));
    content.resize(static_cast<std::size_t>(file.gcount()));
  }
  // A folder opens, but cannot be read.
  if (content.empty()) {
    const int error = errno;
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read ", role, ": ", error != 0 ? std::strerror(error) : "it is empty"));
  }
  return content;
}

absl::Status check_key_file(const std::string& path, const std::string& role) {
  struct stat about {};
  // Reading says why it is not there.
  if (::stat(path.c_str(), &about) != 0 || (about.st_mode & (S_IROTH | S_IWOTH)) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(role, " can be read or changed by everybody on this machine: chmod 600"));
}

BioPtr open_text(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
}

/// All certificates of a PEM text, in its order.
std::vector<CertificatePtr> parse_certificates(const std::string& text) {
  const BioPtr bio = open_text(text);
  std::vector<CertificatePtr> certificates;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate, X509_free);
  }
  ERR_clear_error();
  return certificates;
}

KeyPtr parse_key(const std::string& text) {
  const BioPtr bio = open_text(text);
  // A callback that gives no password, so that an encrypted key fails rather than asks on the
  // terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr), EVP_PKEY_free);
  ERR_clear_error();
  return key;
}

std::string time_text(const ASN1_TIME* time) {
  const BioPtr bio(BIO_new(BIO_s_mem()), BIO_free);
  ASN1_TIME_print(bio.get(), time);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<std::size_t>(size));
}

/// `what` says whose dates these are.
absl::Status check_dates(const X509* certificate, const std::string& what) {
  const ASN1_TIME* from = X509_get0_notBefore(certificate);
  const ASN1_TIME* until = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(until) < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " expired on ", time_text(until), ": renew it"));
  }
  if (X509_cmp_current_time(from) > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " is not valid before ", time_text(from), ": is the clock right?"));
  }
  return absl::OkStatus();
}

bool contains(const std::vector<CertificatePtr>& certificates, const X509* wanted) {
  return std::any_of(certificates.begin(), certificates.end(),
                     [wanted](const auto& each) { return X509_cmp(each.get(), wanted) == 0; });
}

std::string subject_text(const X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()), BIO_free);
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate), 0, XN_FLAG_ONELINE);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return internal::printable(std::string(text, static_cast<std::size_t>(size)), 128);
}

/// Whether `chain`, whose first certificate is the worker's own, leads to one of `authorities`:
/// what peers that trust the same authorities will find. By the rules that gRPC goes by, in which
/// an intermediate authority may be trusted without its root.
absl::Status check_chain(const std::vector<CertificatePtr>& chain,
                         const std::vector<CertificatePtr>& authorities, const TlsFiles& roles) {
  const std::unique_ptr<X509_STORE, void (*)(X509_STORE*)> store(X509_STORE_new(), X509_STORE_free);
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  for (const CertificatePtr& authority : authorities) {
    X509_STORE_add_cert(store.get(), authority.get());
  }
  // Does not own what is in it.
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> others(
      sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  for (const CertificatePtr& other : chain) sk_X509_push(others.get(), other.get());
  const std::unique_ptr<X509_STORE_CTX, void (*)(X509_STORE_CTX*)> context(X509_STORE_CTX_new(),
                                                                           X509_STORE_CTX_free);
  X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), others.get());
  const bool verified = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (verified) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  const X509* culprit = X509_STORE_CTX_get_current_cert(context.get());
  if (culprit != nullptr &&
      (error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID)) {
    const std::string& file = contains(authorities, culprit) ? roles.ca : roles.certificate;
    absl::Status status =
        check_dates(culprit, absl::StrCat(file, ": the authority ", subject_text(culprit)));
    if (!status.ok()) return status;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(roles.certificate, " is not signed by an authority in ", roles.ca, " (",
                   X509_verify_cert_error_string(error),
                   "): peers that trust the same authorities would refuse it"));
}

absl::Status check_pem(const TlsPem& pem, const TlsFiles& roles) {
  const std::vector<CertificatePtr> authorities = parse_certificates(pem.ca);
  if (authorities.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(roles.ca, " holds no PEM certificate"));
  }
  const std::vector<CertificatePtr> chain = parse_certificates(pem.certificate);
  if (chain.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(roles.certificate, " holds no PEM certificate"));
  }
  const KeyPtr key = parse_key(pem.key);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(roles.key, " holds no PEM private key (it must not be encrypted)"));
  }
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        absl::StrCat(roles.key, " is not the key of ", roles.certificate));
  }
  if (absl::Status valid = check_dates(chain.front().get(), roles.certificate); !valid.ok()) {
    return valid;
  }
  return check_chain(chain, authorities, roles);
}

}  // namespace

Credentials Credentials::insecure() { return Credentials(Kind::kInsecure); }

Credentials Credentials::insecure_on_any_network() { return Credentials(Kind::kInsecureAnywhere); }

Credentials Credentials::tls(TlsFiles files) {
  return Credentials(Kind::kTls, Source::kFiles, std::move(files));
}

Credentials Credentials::tls(TlsPem pem) {
  return Credentials(Kind::kTls, Source::kMemory,
                     TlsFiles{std::move(pem.ca), std::move(pem.certificate), std::move(pem.key)});
}

Credentials Credentials::mutual_tls(TlsFiles files) {
  return Credentials(Kind::kMutualTls, Source::kFiles, std::move(files));
}

Credentials Credentials::mutual_tls(TlsPem pem) {
  return Credentials(Kind::kMutualTls, Source::kMemory,
                     TlsFiles{std::move(pem.ca), std::move(pem.certificate), std::move(pem.key)});
}

Credentials Credentials::job_tls() { return Credentials(Kind::kJobTls); }

absl::StatusOr<Credentials> Credentials::for_worker(const std::string& token,
                                                    const std::string& job,
                                                    const std::string& worker,
                                                    const std::vector<std::string>& hosts) {
  // As long as a job may take; each start makes another one.
  constexpr int kDays = 3650;
  const absl::StatusOr<internal::Authority> authority = internal::Authority::of_token(token, job);
  if (!authority.ok()) return authority.status();
  absl::StatusOr<TlsPem> pem = authority->issue({worker, hosts}, kDays);
  if (!pem.ok()) return pem.status();
  return Credentials(
      Kind::kJobTls, Source::kMemory,
      TlsFiles{std::move(pem->ca), std::move(pem->certificate), std::move(pem->key)});
}

absl::StatusOr<TlsPem> Credentials::load() const {
  TlsPem pem{texts_.ca, texts_.certificate, texts_.key};
  TlsFiles roles{"the CA given", "the certificate given", "the private key given"};
  if (source_ == Source::kFiles) {
    roles = {absl::StrCat("CA file \"", texts_.ca, "\""),
             absl::StrCat("certificate file \"", texts_.certificate, "\""),
             absl::StrCat("key file \"", texts_.key, "\"")};
    absl::StatusOr<std::string> ca = read_file(texts_.ca, roles.ca);
    if (!ca.ok()) return ca.status();
    absl::StatusOr<std::string> certificate = read_file(texts_.certificate, roles.certificate);
    if (!certificate.ok()) return certificate.status();
    absl::StatusOr<std::string> key = read_file(texts_.key, roles.key);
    if (!key.ok()) return key.status();
    // What is no key is named as that.
    const absl::Status is_own = check_key_file(texts_.key, roles.key);
    if (absl::StrContains(*key, "PRIVATE KEY") && !is_own.ok()) return is_own;
    pem = {*std::move(ca), *std::move(certificate), *std::move(key)};
  }
  if (absl::Status status = check_pem(pem, roles); !status.ok()) return status;
  return pem;
}

absl::Status Credentials::check() const {
  const bool has_texts = uses_tls() && !(is_of_job() && texts_.key.empty());
  return has_texts ? load().status() : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials::channel_credentials() const {
  if (!uses_tls()) return grpc::InsecureChannelCredentials();
  absl::StatusOr<TlsPem> pem = load();
  if (!pem.ok()) return pem.status();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = std::move(pem->ca);
  if (kind_ != Kind::kTls) {
    options.pem_cert_chain = std::move(pem->certificate);
    options.pem_private_key = std::move(pem->key);
  }
  return grpc::SslCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials::server_credentials() const {
  if (!uses_tls()) return grpc::InsecureServerCredentials();
  absl::StatusOr<TlsPem> pem = load();
  if (!pem.ok()) return pem.status();
  const grpc_ssl_client_certificate_request_type asks_for =
      kind_ != Kind::kTls ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                          : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  if (source_ == Source::kFiles) {
    namespace tls = grpc::experimental;
    tls::TlsServerCredentialsOptions watched(std::make_shared<tls::FileWatcherCertificateProvider>(
        texts_.key, texts_.certificate, texts_.ca, kReadAgainSeconds));
    watched.watch_identity_key_cert_pairs();
    watched.watch_root_certs();
    watched.set_cert_request_type(asks_for);
    return tls::TlsServerCredentials(watched);
  }
  grpc::SslServerCredentialsOptions options(asks_for);
  options.pem_root_certs = std::move(pem->ca);
  options.pem_key_cert_pairs.push_back({std::move(pem->key), std::move(pem->certificate)});
  return grpc::SslServerCredentials(options);
}

}  // namespace sinew
