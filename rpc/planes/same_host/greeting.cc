#include "sinew/rpc/planes/same_host/greeting.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/same_host/location_seal.h"
#include "sinew/rpc/planes/same_host/meeting_socket.h"
#include "sinew/rpc/planes/same_host/shown_word.h"

namespace sinew::internal {
namespace {

using Role = ConnectionEnds::Role;

std::string little_endian(std::uint64_t number) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) {
    bytes.push_back(static_cast<char>((number >> shift) & 0xffU));
  }
  return bytes;
}

proto::SameHostMemory message_of(const MemoryAccess& access) {
  proto::SameHostMemory memory;
  memory.set_key(access.key);
  memory.set_word(access.word);
  memory.set_word_address(access.word_address);
  return memory;
}

}  // namespace

absl::StatusOr<MeetingTerms> MeetingTerms::make(const ConnectionEnds& ends,
                                                const std::string& own_nonce,
                                                const std::string& remote_nonce, MemoryAccess own) {
  const bool opens = ends.self == Role::kOpener;
  const std::string& dialled = opens ? ends.local_hello : ends.remote_hello;
  const std::string& accepted = opens ? ends.remote_hello : ends.local_hello;
  const std::string key =
      opens ? absl::StrCat(own_nonce, remote_nonce) : absl::StrCat(remote_nonce, own_nonce);
  const auto mac_by = [&](absl::string_view whose) {
    return mac_of(key, absl::StrCat("sinew same-host meeting", absl::string_view("\0", 1), whose,
                                    little_endian(dialled.size()), dialled, accepted));
  };
  const absl::StatusOr<Digest> of_opener = mac_by("d");
  const absl::StatusOr<Digest> of_acceptor = mac_by("a");
  if (!of_opener.ok()) return of_opener.status();
  if (!of_acceptor.ok()) return of_acceptor.status();
  MeetingTerms terms;
  terms.self = ends.self;
  terms.own_mac = opens ? *of_opener : *of_acceptor;
  terms.expected_mac = opens ? *of_acceptor : *of_opener;
  terms.own = std::move(own);
  return terms;
}

absl::StatusOr<Greeting> Greeting::begin(const MeetingTerms& terms, FileDescriptor socket) {
  absl::StatusOr<PeerProcess> peer = PeerProcess::of(socket, terms.source);
  if (!peer.ok()) return peer.status();
  if (absl::Status status = ask_for_senders(socket); !status.ok()) return status;
  const bool visits = terms.self == Role::kOpener;
  Greeting greeting(visits ? Step::kHostsMac : Step::kVisitorsMac, *std::move(peer),
                    std::move(socket));
  if (visits) {
    proto::SameHostGreeting first;
    first.set_mac(terms.own_mac.data(), terms.own_mac.size());
    first.set_challenge(greeting.challenge_);
    if (absl::Status status = greeting.send(first); !status.ok()) return status;
  }
  return greeting;
}

absl::StatusOr<std::optional<MetPeer>> Greeting::go_on(const MeetingTerms& terms) {
  absl::StatusOr<std::optional<SignedMessage>> received = receive_signed(socket_);
  if (!received.ok()) return received.status();
  if (!received->has_value()) return std::optional<MetPeer>();
  proto::SameHostGreeting greeting;
  if (!greeting.ParseFromString((*received)->bytes)) {
    return peer_.unreachable("sends a malformed greeting");
  }
  absl::Status status;
  if (next_ != Step::kVisitorsAnswer) status = check_mac(terms, greeting);
  if (next_ != Step::kVisitorsMac) status.Update(check_answer(greeting, (*received)->sender));
  if (status.ok() && next_ != Step::kVisitorsAnswer) {
    proto::SameHostGreeting answer;
    if (next_ == Step::kVisitorsMac) {
      answer.set_mac(terms.own_mac.data(), terms.own_mac.size());
      answer.set_challenge(challenge_);
    }
    answer.set_answer(greeting.challenge());
    *answer.mutable_memory() = message_of(terms.own);
    status = send(answer);
  }
  if (!status.ok()) return status;
  if (std::exchange(next_, Step::kVisitorsAnswer) == Step::kVisitorsMac) {
    return std::optional<MetPeer>();
  }
  return met(greeting.memory());
}

absl::Status Greeting::send(const proto::SameHostGreeting& greeting) const {
  return send_signed(socket_, greeting.SerializeAsString());
}

absl::Status Greeting::check_mac(const MeetingTerms& terms,
                                 const proto::SameHostGreeting& greeting) const {
  if (are_same(terms.expected_mac, greeting.mac())) return absl::OkStatus();
  return peer_.unreachable("is not the other end of the connection");
}

absl::Status Greeting::check_answer(const proto::SameHostGreeting& greeting,
                                    const ucred& sender) const {
  // In this order: who was taken hold of still had its number when this was sent.
  if (greeting.answer() == challenge_ && peer_.is_sender(sender) && peer_.is_alive()) {
    return absl::OkStatus();
  }
  return peer_.unreachable("has ended, or is not the one that speaks");
}

absl::StatusOr<std::optional<MetPeer>> Greeting::met(const proto::SameHostMemory& memory) {
  if (memory.key().size() != LocationSeal::kKeyBytes || memory.word().size() != ShownWord::kBytes) {
    return peer_.unreachable("sends a malformed greeting");
  }
  return std::optional(
      MetPeer{std::move(peer_), {memory.key(), memory.word(), memory.word_address()}});
}

}  // namespace sinew::internal
