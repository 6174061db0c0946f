#include "sinew/rpc/transport/authority.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/freeing.h"
#include "sinew/rpc/base/worker_name.h"

namespace sinew::internal {
namespace {

constexpr char kJobUri[] = "sinew:job/";
constexpr int kMostDays = 36500;
// Clocks of hosts differ.
constexpr long kEarlierSeconds = 3600;

using BioPtr = std::unique_ptr<BIO, Freeing<&BIO_free>>;
using NumberPtr = std::unique_ptr<BIGNUM, Freeing<&BN_free>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, Freeing<&X509_EXTENSION_free>>;

std::string text_of(BIO* bio) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio, &text);
  return std::string(text, static_cast<std::size_t>(size));
}

absl::Status openssl_failed(absl::string_view what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("OpenSSL does not ", what, ": ", text.data()));
}

bool set_dates(X509* certificate, int days) {
  return X509_gmtime_adj(X509_getm_notBefore(certificate), -kEarlierSeconds) != nullptr &&
         X509_time_adj_ex(X509_getm_notAfter(certificate), days, 0, nullptr) != nullptr;
}

bool set_serial(X509* certificate) {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return false;
  bytes[0] = (bytes[0] & 0x3f) | 0x40;
  const NumberPtr serial(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
  return serial != nullptr &&
         BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool set_common_name(X509_NAME* name, const std::string& text) {
  // A common name of X.509 has at most 64 characters; certificates are verified by the alternative
  // names.
  const std::string cut = text.substr(0, 64);
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(cut.data()),
                                    static_cast<int>(cut.size()), -1, 0) == 1;
}

bool add_extension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// So that two authorities of one job have two names: a verifier looks for the name of the issuer.
std::string tag_of(const EVP_PKEY* key) {
  unsigned char* bytes = nullptr;
  const int size = i2d_PUBKEY(key, &bytes);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int digest_size = 0;
  if (size > 0) {
    EVP_Digest(bytes, static_cast<std::size_t>(size), digest.data(), &digest_size, EVP_sha256(),
               nullptr);
  }
  OPENSSL_free(bytes);
  return absl::StrFormat("%02x%02x%02x%02x", digest[0], digest[1], digest[2], digest[3]);
}

// Ed25519 has its own digest.
const EVP_MD* digest_for(const EVP_PKEY* key) {
  return EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
}

absl::Status check_days(int days) {
  if (days >= 1 && days <= kMostDays) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("a certificate is valid for 1 to %d days, not %d", kMostDays, days));
}

// Nothing that would be read as a further name.
absl::StatusOr<std::string> name_of_host(const std::string& host) {
  const bool has_colon = absl::StrContains(host, ":");
  const bool is_one =
      !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ||
               c == ':' || c == '_' || c == '*';
      });
  if (!is_one) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", printable(host, 253), "' is no name or address of a host"));
  }
  const std::unique_ptr<ASN1_OCTET_STRING, Freeing<&ASN1_OCTET_STRING_free>> address(
      a2i_IPADDRESS(host.c_str()));
  ERR_clear_error();
  if (address == nullptr && has_colon) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", host, "' is no address of a host; ports are left out"));
  }
  return absl::StrCat(address != nullptr ? "IP:" : "DNS:", host);
}

std::string pem_of(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return text_of(bio.get());
}

std::string pem_of(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return text_of(bio.get());
}

// Those of its subject alternative names that are URIs.
std::vector<std::string> uris_of(const X509* certificate) {
  std::vector<std::string> uris;
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<std::size_t>(ASN1_STRING_length(uri)));
  }
  GENERAL_NAMES_free(names);
  return uris;
}

bool is_plain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_' ||
         c == '~';
}

std::string job_of(absl::string_view uri) {
  std::string job;
  absl::ConsumePrefix(&uri, kJobUri);
  for (std::size_t i = 0; i < uri.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      const char c = at < uri.size() ? absl::ascii_toupper(static_cast<unsigned char>(uri[at])) : 0;
      return c >= 'A' ? c - 'A' + 10 : c - '0';
    };
    const bool is_coded = uri[i] == '%' && i + 2 < uri.size();
    job.push_back(is_coded ? static_cast<char>(digit(i + 1) * 16 + digit(i + 2)) : uri[i]);
    if (is_coded) i += 2;
  }
  return job;
}

}  // namespace

void Authority::Free::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }
void Authority::Free::operator()(x509_st* certificate) const { X509_free(certificate); }

Authority::Authority(std::string job, Key key, Certificate certificate)
    : job_(std::move(job)), key_(std::move(key)), certificate_(std::move(certificate)) {}

absl::StatusOr<Authority> Authority::make(const std::string& job, int days) {
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return openssl_failed("draw a key");
  return self_signed(job, std::move(key), days);
}

absl::StatusOr<Authority> Authority::of_token(const std::string& token, const std::string& job) {
  const std::string use = absl::StrCat("authority of the job ", job);
  std::array<unsigned char, 32> seed{};
  unsigned int size = 0;
  HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
       reinterpret_cast<const unsigned char*>(use.data()), use.size(), seed.data(), &size);
  Key key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size()));
  if (key == nullptr) return openssl_failed("make a key");
  return self_signed(job, std::move(key), kMostDays / 10);
}

absl::StatusOr<Authority> Authority::self_signed(const std::string& job, Key key, int days) {
  if (absl::Status fits = check_days(days); !fits.ok()) return fits;
  Certificate made(X509_new());
  X509* const certificate = made.get();
  const bool is_made =
      certificate != nullptr && X509_set_version(certificate, X509_VERSION_3) == 1 &&
      set_serial(certificate) && set_dates(certificate, days) &&
      set_common_name(X509_get_subject_name(certificate),
                      absl::StrCat("authority ", tag_of(key.get()), " of job ", job)) &&
      X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) == 1 &&
      X509_set_pubkey(certificate, key.get()) == 1 &&
      add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE") &&
      add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") &&
      add_extension(certificate, certificate, NID_subject_key_identifier, "hash") &&
      add_extension(certificate, certificate, NID_subject_alt_name,
                    absl::StrCat("URI:", job_uri(job))) &&
      X509_sign(certificate, key.get(), digest_for(key.get())) != 0;
  if (!is_made) return openssl_failed("make the certificate of an authority");
  return Authority(job, std::move(key), std::move(made));
}

absl::StatusOr<Authority> Authority::load(const std::string& certificate, const std::string& key) {
  const auto open = [](const std::string& text) {
    return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  };
  Certificate read(PEM_read_bio_X509(open(certificate).get(), nullptr, nullptr, nullptr));
  const auto no_password = [](char*, int, int, void*) { return -1; };
  Key own(PEM_read_bio_PrivateKey(open(key).get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (read == nullptr) return absl::InvalidArgumentError("it holds no certificate in PEM");
  if (own == nullptr) return absl::InvalidArgumentError("its key is none in PEM, not encrypted");
  if (X509_check_private_key(read.get(), own.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("its key is not that of its certificate");
  }
  for (const std::string& uri : uris_of(read.get())) {
    if (is_job_uri(uri)) return Authority(job_of(uri), std::move(own), std::move(read));
  }
  return absl::InvalidArgumentError("its certificate names no job");
}

absl::StatusOr<TlsPem> Authority::issue(const Subject& subject, int days) const {
  if (absl::Status fits = check_days(days); !fits.ok()) return fits;
  if (absl::Status valid = validate_worker_name(subject.worker); !valid.ok()) return valid;
  std::vector<std::string> names = {absl::StrCat("DNS:", subject.worker),
                                    absl::StrCat("URI:", job_uri(job_))};
  for (const std::string& host : subject.hosts) {
    absl::StatusOr<std::string> name = name_of_host(host);
    if (!name.ok()) return name.status();
    names.push_back(*std::move(name));
  }
  const Key key(EVP_EC_gen("P-256"));
  const Certificate made(X509_new());
  X509* const certificate = made.get();
  const bool is_made =
      key != nullptr && certificate != nullptr &&
      X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
      set_dates(certificate, days) &&
      set_common_name(X509_get_subject_name(certificate), subject.worker) &&
      X509_set_issuer_name(certificate, X509_get_subject_name(certificate_.get())) == 1 &&
      X509_set_pubkey(certificate, key.get()) == 1 &&
      add_extension(certificate, certificate_.get(), NID_basic_constraints, "critical,CA:FALSE") &&
      add_extension(certificate, certificate_.get(), NID_ext_key_usage, "serverAuth,clientAuth") &&
      add_extension(certificate, certificate_.get(), NID_authority_key_identifier,
                    "keyid:always") &&
      add_extension(certificate, certificate_.get(), NID_subject_alt_name,
                    absl::StrJoin(names, ",")) &&
      X509_sign(certificate, key_.get(), digest_for(key_.get())) != 0;
  if (!is_made) return openssl_failed("make a certificate");
  return TlsPem{this->certificate(), pem_of(certificate), pem_of(key.get())};
}

std::string Authority::certificate() const { return pem_of(certificate_.get()); }
std::string Authority::key() const { return pem_of(key_.get()); }

std::string job_uri(absl::string_view job) {
  std::string uri = kJobUri;
  for (const char c : job) {
    if (is_plain(c)) {
      uri.push_back(c);
    } else {
      absl::StrAppendFormat(&uri, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return uri;
}

bool is_job_uri(absl::string_view name) { return absl::StartsWith(name, kJobUri); }

absl::StatusOr<std::string> describe_certificate(const std::string& pem) {
  const BioPtr in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const std::unique_ptr<X509, Freeing<&X509_free>> certificate(
      PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) {
    return absl::InvalidArgumentError("it holds no certificate in PEM");
  }
  const BioPtr out(BIO_new(BIO_s_mem()));
  BIO_printf(out.get(), "subject: ");
  X509_NAME_print_ex(out.get(), X509_get_subject_name(certificate.get()), 0, XN_FLAG_ONELINE);
  BIO_printf(out.get(), "\nsigned by: ");
  X509_NAME_print_ex(out.get(), X509_get_issuer_name(certificate.get()), 0, XN_FLAG_ONELINE);
  BIO_printf(out.get(), "\nvalid from: ");
  ASN1_TIME_print(out.get(), X509_get0_notBefore(certificate.get()));
  BIO_printf(out.get(), "\nvalid until: ");
  ASN1_TIME_print(out.get(), X509_get0_notAfter(certificate.get()));
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    BIO_printf(out.get(), " (it has expired)");
  }
  BIO_printf(out.get(), "\nnames: ");
  const int at = X509_get_ext_by_NID(certificate.get(), NID_subject_alt_name, -1);
  if (at >= 0) X509V3_EXT_print(out.get(), X509_get_ext(certificate.get(), at), 0, 0);
  BIO_printf(out.get(), "\n");
  return text_of(out.get());
}

}  // namespace sinew::internal
