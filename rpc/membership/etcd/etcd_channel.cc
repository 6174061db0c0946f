#include "sinew/rpc/membership/etcd/etcd_channel.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"

namespace sinew::internal::etcd {
namespace {

// etcd ends connections that are asked for life more often than every 5 s.
constexpr int kKeepaliveTimeMs = 10 * 1000;
constexpr int kKeepaliveTimeoutMs = 5 * 1000;

absl::StatusOr<std::string> read_pem(const std::string& path, absl::string_view role) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (absl::StrContains(text, "-----BEGIN ")) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(role, " for etcd, \"", path, "\", ",
                   file.is_open() ? "has nothing in PEM"
                                  : absl::StrCat("cannot be read: ", std::strerror(errno))));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> make_credentials(
    const EtcdOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureChannelCredentials();
  auto ca = read_pem(options.tls->ca, "the authority's certificate");
  if (!ca.ok()) return ca.status();
  auto certificate = read_pem(options.tls->certificate, "the certificate");
  if (!certificate.ok()) return certificate.status();
  auto key = read_pem(options.tls->key, "the key");
  if (!key.ok()) return key.status();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = *std::move(ca);
  ssl.pem_cert_chain = *std::move(certificate);
  ssl.pem_private_key = *std::move(key);
  return grpc::SslCredentials(ssl);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> make_etcd_channel(
    const std::string& endpoint, const std::vector<std::string>& addresses,
    const EtcdOptions& options) {
  const absl::StatusOr<HostPort> target = parse_host_port(endpoint);
  if (!target.ok()) return target.status();
  auto credentials = make_credentials(options);
  if (!credentials.ok()) return credentials.status();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // While a watch is all that there is.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A new channel is a new connection: which server is asked, and when, is the client's matter.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  if (!target->is_ipv4() && !target->is_ipv6()) {
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, endpoint);
    // Its certificate is for the name.
    if (options.tls.has_value()) arguments.SetSslTargetNameOverride(target->host);
  }
  const absl::string_view scheme = addresses.front().front() == '[' ? "ipv6:" : "ipv4:";
  return grpc::CreateCustomChannel(absl::StrCat(scheme, absl::StrJoin(addresses, ",")),
                                   *credentials, arguments);
}

}  // namespace sinew::internal::etcd
