#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "sinew/plane.pb.h"
#include "sinew/rpc/planes/same_host/same_host_plane.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::internal {

using Role = ConnectionEnds::Role;

/// What a verification comes to, on another thread.
class Verdict {
 public:
  PullLink::OnEnd on_end() {
    return [state = state_](absl::Status status) {
      state->status = std::move(status);
      state->ended.notify();
    };
  }
  absl::Status wait() const {
    return state_->ended.wait() ? state_->status : absl::UnknownError("no end");
  }

 private:
  struct State {
    absl::Status status;
    Happening ended;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline absl::Status verify(PullLink& link, absl::string_view proof) {
  Verdict verdict;
  link.verify(proof, verdict.on_end());
  return verdict.wait();
}

inline absl::Status fetch(PullLink& reader, const std::string& location, std::string& to) {
  absl::Status result = absl::UnknownError("no answer");
  reader.fetch(location, {to.data(), to.size(), nullptr},
               [&](absl::Status status) { result = std::move(status); });
  return result;
}

/// In one piece, as a tensor's is. `bytes` must outlive it.
inline absl::Cord flat(absl::string_view bytes) {
  return absl::MakeCordFromExternal(bytes, [] {});
}

/// A challenge as the other end of a connection would send it.
inline std::string challenge_with(const std::string& nonce, const PullLink& of_this_host) {
  proto::SameHostChallenge challenge;
  EXPECT_TRUE(challenge.ParseFromString(of_this_host.challenge()));
  challenge.set_nonce(nonce);
  return challenge.SerializeAsString();
}
inline std::string nonce_of(const PullLink& link) {
  proto::SameHostChallenge challenge;
  EXPECT_TRUE(challenge.ParseFromString(link.challenge()));
  return challenge.nonce();
}

/// Two links, and what is needed to tell one what the other one says.
struct Ends {
  explicit Ends(PullPlane& plane) : Ends(plane, {"dialled", "accepted"}, {"accepted", "dialled"}) {}
  /// Their own and the other's hello.
  Ends(PullPlane& plane, std::pair<std::string, std::string> of_opener,
       std::pair<std::string, std::string> of_acceptor)
      : opener(plane.open({Role::kOpener, of_opener.first, of_opener.second})),
        acceptor(plane.open({Role::kAcceptor, of_acceptor.first, of_acceptor.second})) {}

  /// Carries everything from one to the other. What the opener finds, or the acceptor if the opener
  /// finds nothing wrong.
  absl::Status meet() {
    const auto from_opener = opener->prove(acceptor->challenge());
    const auto from_acceptor = acceptor->prove(opener->challenge());
    if (!from_opener.ok()) return from_opener.status();
    if (!from_acceptor.ok()) return from_acceptor.status();
    Verdict of_acceptor;
    acceptor->verify(*from_opener, of_acceptor.on_end());
    const absl::Status of_opener = verify(*opener, *from_acceptor);
    return of_opener.ok() ? of_acceptor.wait() : of_opener;
  }

  std::unique_ptr<PullLink> opener;
  std::unique_ptr<PullLink> acceptor;
};

/// Some containers, while an image is built for one, let no process look into another, nor into
/// itself that way.
inline bool is_forbidden(const absl::Status& met) {
  return absl::StrContains(met.message(), "Operation not permitted");
}

}  // namespace sinew::internal
