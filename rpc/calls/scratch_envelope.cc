#include "sinew/rpc/calls/scratch_envelope.h"

#include <array>
#include <utility>

#include "sinew/rpc.pb.h"

namespace sinew::internal {
namespace {

using Kind = ScratchEnvelope::Kind;

// Serialised. What it takes in memory is more, by a factor that the message's fields bound.
constexpr int kMaxKeptBytes = 512;

// Of what is over 2 GiB the size is negative; protobuf does not serialise that.
bool is_small(int size) { return size >= 0 && size <= kMaxKeptBytes; }

// The thread's variables are going away, and a destructor of another one makes calls.
thread_local bool spares_are_gone = false;

struct Spares {
  ~Spares() { spares_are_gone = true; }
  std::array<std::unique_ptr<proto::Envelope>, ScratchEnvelope::kKinds> of;
};

std::unique_ptr<proto::Envelope>* spare_of_thread(Kind kind) {
  if (spares_are_gone) return nullptr;
  thread_local Spares spares;
  return &spares.of[static_cast<std::size_t>(kind)];
}

// Clear() of the envelope would free the message within.
bool clear_small(Kind kind, proto::Envelope& envelope) {
  if (kind == Kind::kCall && envelope.has_call() && is_small(envelope.call().GetCachedSize())) {
    envelope.mutable_call()->Clear();
    return true;
  }
  if (kind == Kind::kReply && envelope.has_reply() && is_small(envelope.reply().GetCachedSize())) {
    envelope.mutable_reply()->Clear();
    return true;
  }
  return false;
}

}  // namespace

ScratchEnvelope::ScratchEnvelope(Kind kind) : kind_(kind) {
  if (auto* const spare = spare_of_thread(kind)) envelope_ = std::move(*spare);
  if (envelope_ == nullptr) envelope_ = std::make_unique<proto::Envelope>();
}

ScratchEnvelope::~ScratchEnvelope() {
  if (!serialised_ || !clear_small(kind_, *envelope_)) return;
  if (auto* const spare = spare_of_thread(kind_)) *spare = std::move(envelope_);
}

}  // namespace sinew::internal
