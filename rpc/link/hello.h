#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/link.pb.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/link/link_messages.h"
#include "sinew/rpc/link/link_secret.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

inline constexpr std::uint32_t kProtocolVersion = 4;

/// What a worker says of itself in all of its hellos.
struct SelfDescription {
  WorkerInfo worker;
  std::string job;
  std::string address;
  std::uint64_t method_digest = 0;
};

/// Writes the part of a hello that says who speaks.
void write_self(const SelfDescription& self, proto::Hello& hello);

/// The hello as bytes, with the sender's half of the secret if the other end may lack it, and with
/// the proof once both halves are known.
enum class Half { kTell, kKeep };
std::string seal_hello(proto::Hello hello, const LinkSecret& secret, Half half);
/// Whether whoever wrote the hello knew the secret.
bool is_proved(const proto::Hello& hello, const LinkSecret& secret);

/// A hello that refuses, as the status for the transport. `secret`, if it is shared, proves that it
/// comes from the link's other end. The code is for people.
absl::Status refuse(const SelfDescription& self, Refusal refusal, const std::string& text,
                    const LinkSecret* secret);
/// What came with the status of a connection that went down; nothing if it was not refused so.
absl::StatusOr<proto::Hello> read_refusal(const absl::Status& status);

/// Parses a hello and checks what does not depend on the link: version, job, the name's form, and
/// that the proof of identity, where there is one, covers the name. The error has a refusal.
struct Unwelcome {
  Refusal refusal = Refusal::kNone;
  std::string text;
};
absl::StatusOr<proto::Hello> parse_hello(const std::string& bytes, const std::string& address);
Unwelcome check_hello(const proto::Hello& hello, const SelfDescription& self,
                      const AuthenticatedPeer& remote);

}  // namespace sinew::internal
