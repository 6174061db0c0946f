#include "sinew/rpc/calls/scratch_envelope.h"

#include <optional>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "sinew/rpc.pb.h"

namespace sinew::internal {
namespace {

using EnvelopeKind = ScratchEnvelope::Kind;

void write_call(ScratchEnvelope& envelope, const std::string& method) {
  proto::Call& call = *envelope->mutable_call();
  call.set_method(method);
  call.set_disposition(proto::RETAIN);
  call.add_chain("app::outer");
  call.add_arguments()->set_integer(7);
  call.mutable_target()->set_type_name("t");
}

std::string serialised(ScratchEnvelope& envelope) {
  std::string bytes = envelope->SerializeAsString();
  envelope.note_serialised();
  return bytes;
}

/// Where the call of one that is made now is.
const proto::Call* next_call() {
  ScratchEnvelope next(EnvelopeKind::kCall);
  const proto::Call* const call = next->has_call() ? &next->call() : nullptr;
  serialised(next);
  return call;
}

TEST(ScratchEnvelopeTest, TheNextOneHasTheMemoryAndNothingElse) {
  const proto::Call* first = nullptr;
  {
    ScratchEnvelope envelope(EnvelopeKind::kCall);
    write_call(envelope, "app::first");
    first = &envelope->call();
    serialised(envelope);
  }
  ScratchEnvelope second(EnvelopeKind::kCall);
  EXPECT_EQ(&second->call(), first);
  EXPECT_EQ(second->call().ByteSizeLong(), 0U);
  write_call(second, "app::second");
  proto::Envelope fresh;
  fresh.mutable_call()->CopyFrom(second->call());
  EXPECT_EQ(serialised(second), fresh.SerializeAsString());
}

TEST(ScratchEnvelopeTest, OneIsNotAnothers) {
  ScratchEnvelope outer(EnvelopeKind::kCall);
  write_call(outer, "app::outer");
  {
    ScratchEnvelope inner(EnvelopeKind::kCall);
    ScratchEnvelope reply(EnvelopeKind::kReply);
    write_call(inner, "app::inner");
    reply->mutable_reply()->set_id(3);
    EXPECT_NE(&inner->call(), &outer->call());
    serialised(inner);
    serialised(reply);
  }
  EXPECT_EQ(outer->call().method(), "app::outer");
  ScratchEnvelope reply(EnvelopeKind::kReply);
  EXPECT_TRUE(reply->has_reply());
  EXPECT_EQ(reply->reply().id(), 0U);
}

TEST(ScratchEnvelopeTest, LargeOnesAndThoseOfUnknownSizeAreNotKept) {
  // As if nothing had been kept before.
  std::optional<ScratchEnvelope> taken(std::in_place, EnvelopeKind::kCall);
  {
    ScratchEnvelope large(EnvelopeKind::kCall);
    write_call(large, std::string(100'000, 'm'));
    serialised(large);
  }
  EXPECT_EQ(next_call(), nullptr);
  {
    ScratchEnvelope unsent(EnvelopeKind::kCall);
    write_call(unsent, "app::unsent");
  }
  EXPECT_EQ(next_call(), nullptr);
  {
    ScratchEnvelope refused(EnvelopeKind::kReply);
    refused->mutable_reply()->set_id(1);
    serialised(refused);
    refused->Clear();
  }
  EXPECT_FALSE(ScratchEnvelope(EnvelopeKind::kReply)->has_reply());
}

TEST(ScratchEnvelopeTest, WhoeverLetsGoOfItKeepsIt) {
  std::optional<ScratchEnvelope> envelope(std::in_place, EnvelopeKind::kCall);
  write_call(*envelope, "app::travels");
  serialised(*envelope);
  const proto::Call* const call = &(*envelope)->call();
  std::thread([&] {
    envelope.reset();
    EXPECT_EQ(next_call(), call);
  }).join();
}

/// Makes a call when its thread has ended, as users' variables may do.
struct CallsLate {
  ~CallsLate() {
    ScratchEnvelope late(EnvelopeKind::kCall);
    write_call(late, "app::late");
    serialised(late);
    *done = true;
  }
  bool* done = nullptr;
};

TEST(ScratchEnvelopeTest, ServesWhenItsThreadsVariablesAreGone) {
  bool done = false;
  std::thread([&] {
    // Made before the spare ones, so it goes after them.
    thread_local CallsLate late;
    late.done = &done;
    next_call();
  }).join();
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace sinew::internal
