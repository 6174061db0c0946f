#include "sinew/rpc/transport/grpc/connection/peer_identity.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpc/grpc_security_constants.h"

namespace sinew::internal {

AuthenticatedPeer peer_identity(const grpc::AuthContext* context, const std::string& address) {
  AuthenticatedPeer peer;
  // gRPC knows no more of a local socket than its number, and at the opening end not even that.
  const bool is_local = absl::StartsWith(address, "fd:") || address == "fd-client";
  peer.address = is_local ? "unix" : address;
  if (context == nullptr || !context->IsPeerAuthenticated()) return peer;
  peer.authenticated = true;
  for (const char* property : {GRPC_X509_SAN_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    for (const grpc::string_ref& value : context->FindPropertyValues(property)) {
      std::string name(value.data(), value.size());
      if (std::find(peer.names.begin(), peer.names.end(), name) == peer.names.end()) {
        peer.names.push_back(std::move(name));
      }
    }
  }
  return peer;
}

std::string stream_origin(const grpc::AuthContext* context, const std::string& address) {
  std::string origin = address;
  if (context == nullptr) return origin;
  for (const grpc::string_ref& certificate :
       context->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME)) {
    absl::StrAppend(&origin, "\n", absl::string_view(certificate.data(), certificate.size()));
  }
  return origin;
}

}  // namespace sinew::internal
