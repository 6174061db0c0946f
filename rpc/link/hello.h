#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/link.pb.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/link/link_messages.h"
#include "sinew/rpc/link/worker_key.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

inline constexpr std::uint32_t kProtocolVersion = 5;

/// What a worker says of itself in all of its hellos.
struct SelfDescription {
  WorkerInfo worker;
  std::string job;
  std::string address;
  std::uint64_t method_digest = 0;
  /// That of the worker's incarnation.
  std::shared_ptr<const WorkerKey> key;
  /// The token of the job; empty: none.
  std::string token;
};

/// Writes the part of a hello that says who speaks.
void write_self(const SelfDescription& self, proto::Hello& hello);

/// The hello as bytes, proved and signed.
std::string seal_hello(proto::Hello hello, const SelfDescription& self);
/// Whether the worker that the hello names has signed it.
bool is_signed(const proto::Hello& hello);

/// A hello that refuses `said`, as the status for the transport. The code is for people.
absl::Status refuse(const SelfDescription& self, Refusal refusal, const std::string& text,
                    const proto::Hello& said);
/// What came with the status of a connection that went down; nothing if it was not refused so.
absl::StatusOr<proto::Hello> read_refusal(const absl::Status& status);

/// Parses a hello and checks what does not depend on the link: version, job, the name's form, that
/// it is signed and knows the job's token, and that the certificate, where there is one, covers the
/// job, and the name unless it was looked at for the address that was called. The error has a
/// refusal.
struct Unwelcome {
  Refusal refusal = Refusal::kNone;
  std::string text;
};
absl::StatusOr<proto::Hello> parse_hello(const std::string& bytes, const std::string& address);
enum class Certified { kTheName, kTheAddress };
Unwelcome check_hello(const proto::Hello& hello, const SelfDescription& self,
                      const AuthenticatedPeer& remote, Certified certified = Certified::kTheName);

}  // namespace sinew::internal
