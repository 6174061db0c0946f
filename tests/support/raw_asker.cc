#include "sinew/tests/support/raw_asker.h"

#include <utility>

#include "gtest/gtest.h"
#include "sinew/rpc/membership/member_codec.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/support/raw_peer.h"

namespace sinew::testing {

using internal::MutexLock;

struct RawAsker::State {
  internal::Mutex mutex;
  bool is_up ABSL_GUARDED_BY(mutex) = false;
  absl::Status down ABSL_GUARDED_BY(mutex);
  std::vector<internal::registry::Answer> heard ABSL_GUARDED_BY(mutex);
  std::string bytes ABSL_GUARDED_BY(mutex);
};

namespace {

class Nobody final : public internal::Acceptor {
 public:
  absl::StatusOr<Accepted> on_connection(const std::string&,
                                         const internal::AuthenticatedPeer&) override {
    return absl::UnavailableError("nobody is let in here");
  }
};

}  // namespace

RawAsker::RawAsker(WorkerInfo claims, Credentials credentials)
    : RawAsker(std::move(claims), internal::WorkerKey::draw(), std::move(credentials)) {}

RawAsker::RawAsker(WorkerInfo claims, std::shared_ptr<const internal::WorkerKey> key,
                   Credentials credentials)
    : key_(std::move(key)),
      claims_(claiming(std::move(claims), *key_)),
      transport_(make_transport_of(std::move(credentials))),
      acceptor_(std::make_unique<Nobody>()),
      state_(std::make_shared<State>()) {
  const absl::Status started = transport_->start(acceptor_.get(), nullptr);
  EXPECT_TRUE(started.ok()) << started;
}

RawAsker::~RawAsker() { transport_->shutdown(); }

absl::Status RawAsker::open(const std::string& address) {
  state_ = std::make_shared<State>();
  internal::RegistryChannel::Events events;
  events.on_up = [state = state_](const WorkerInfo&) {
    MutexLock lock(state->mutex);
    state->is_up = true;
  };
  events.on_message = [state = state_](const std::string& message) {
    const auto said = internal::decode_said(message);
    EXPECT_TRUE(said.ok()) << said.status();
    MutexLock lock(state->mutex);
    state->bytes += message;
    if (!said.ok()) return;
    for (const auto& item : said->items) state->heard.push_back(item.answer);
  };
  events.on_down = [state = state_](const absl::Status& reason,
                                    const std::shared_ptr<const internal::ProcessHold>&) {
    MutexLock lock(state->mutex);
    state->down = reason;
  };
  internal::SelfDescription self;
  self.worker = claims_;
  self.job = "default";
  self.address = transport_->address();
  self.key = key_;
  self.token = token_;
  channel_ = internal::RegistryChannel::open(*transport_, self, internal::Contact::at(address),
                                             std::move(events));
  absl::Status down;
  wait_until([&] {
    MutexLock lock(state_->mutex);
    down = state_->down;
    return state_->is_up || !down.ok();
  });
  return down;
}

void RawAsker::say(const internal::registry::Request& request, std::uint64_t echo) {
  say_bytes(internal::encode(internal::AskedOfRegistrar{echo, request}));
}

void RawAsker::say_bytes(std::string bytes) { channel_->send(std::move(bytes)); }

internal::registry::Join RawAsker::join_as(std::int32_t rank, std::int32_t world_size,
                                           const std::string& job) const {
  internal::Member member;
  member.worker = claims_;
  member.address = transport_->address();
  proto::Member details;
  internal::encode(member, details);
  internal::registry::Join join{{claims_, details.SerializeAsString()}, job, world_size};
  join.self.worker.rank = rank;
  return join;
}

std::vector<internal::registry::Answer> RawAsker::heard() const {
  MutexLock lock(state_->mutex);
  return state_->heard;
}

std::string RawAsker::heard_bytes() const {
  MutexLock lock(state_->mutex);
  return state_->bytes;
}

bool RawAsker::wait_down() const {
  return eventually([this] {
    MutexLock lock(state_->mutex);
    return !state_->down.ok();
  });
}

void RawAsker::wait_until(const std::function<bool()>& is_so) { eventually(is_so); }

}  // namespace sinew::testing
