#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "sinew/plane.pb.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/planes/challenge.h"
#include "sinew/rpc/planes/pull_plane.h"
#include "sinew/rpc/planes/same_host/peer_process.h"

namespace sinew::internal {

/// What the process at one end needs to read what the other one has located.
struct MemoryAccess {
  /// LocationSeal::kKeyBytes.
  std::string key;
  /// ShownWord::kBytes.
  std::string word;
  std::uint64_t word_address = 0;
};

/// The other end of a connection, as it was met.
struct MetPeer {
  PeerProcess process;
  MemoryAccess access;
};

/// What the ends of a connection know before they meet.
struct MeetingTerms {
  ConnectionEnds::Role self = ConnectionEnds::Role::kOpener;
  Digest own_mac{};
  Digest expected_mac{};
  /// For the one who is met.
  MemoryAccess own;
  PeerProcess::Source source = PeerProcess::Source::kSocket;

  /// The nonces went over the connection, `own_nonce` from here.
  static absl::StatusOr<MeetingTerms> make(const ConnectionEnds& ends, const std::string& own_nonce,
                                           const std::string& remote_nonce, MemoryAccess own);
};

/// What two processes that meet say to each other, at one end (plane.proto: SameHostGreeting). The
/// kernel says who the other one is; the MAC, that it is the other end of the connection and not of
/// another one, nor this end; and the answer, that who was taken hold of is who speaks.
class Greeting {
 public:
  /// `socket` is connected, and does not block. An error: no peer to talk with. `terms` are the
  /// same in all calls.
  static absl::StatusOr<Greeting> begin(const MeetingTerms& terms, FileDescriptor socket);

  int socket() const { return socket_.number(); }
  /// Takes in what has arrived. nullopt: more is to come.
  absl::StatusOr<std::optional<MetPeer>> go_on(const MeetingTerms& terms);

 private:
  /// What comes next.
  enum class Step { kVisitorsMac, kHostsMac, kVisitorsAnswer };

  Greeting(Step next, PeerProcess peer, FileDescriptor socket)
      : next_(next), peer_(std::move(peer)), socket_(std::move(socket)) {}

  absl::Status send(const proto::SameHostGreeting& greeting) const;
  absl::Status check_mac(const MeetingTerms& terms, const proto::SameHostGreeting& greeting) const;
  absl::Status check_answer(const proto::SameHostGreeting& greeting, const ucred& sender) const;
  absl::StatusOr<std::optional<MetPeer>> met(const proto::SameHostMemory& memory);

  Step next_;
  PeerProcess peer_;
  FileDescriptor socket_;
  /// Drawn after `peer_` was taken hold of.
  std::string challenge_ = new_challenge();
};

}  // namespace sinew::internal
