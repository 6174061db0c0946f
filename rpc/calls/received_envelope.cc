#include "sinew/rpc/calls/received_envelope.h"

#include "google/protobuf/arena.h"
#include "sinew/rpc.pb.h"

namespace sinew::internal {

struct ReceivedEnvelope::Memory {
#if defined(__SANITIZE_THREAD__)
  // Protobuf's headers give maps further members then. A library that was built without would end
  // those of an arena by its own idea of them.
  proto::Envelope* make() { return &envelope; }
  proto::Envelope envelope;
#else
  static google::protobuf::ArenaOptions options(Memory& memory) {
    google::protobuf::ArenaOptions options;
    options.initial_block = memory.first;
    options.initial_block_size = sizeof(memory.first);
    return options;
  }
  proto::Envelope* make() {
    return google::protobuf::Arena::CreateMessage<proto::Envelope>(&arena);
  }
  // A usual call fits. All of it is to be of a size that threads keep for themselves (glibc's
  // tcache: 1032 bytes), or it would cost more than it saves (measured).
  alignas(8) char first[640];
  google::protobuf::Arena arena{options(*this)};
#endif
};

ReceivedEnvelope::ReceivedEnvelope() = default;
ReceivedEnvelope::ReceivedEnvelope(ReceivedEnvelope&&) noexcept = default;
ReceivedEnvelope& ReceivedEnvelope::operator=(ReceivedEnvelope&&) noexcept = default;
ReceivedEnvelope::~ReceivedEnvelope() = default;

ReceivedEnvelope ReceivedEnvelope::make() {
  static_assert(sizeof(Memory) <= 1032);
  ReceivedEnvelope made;
  made.memory_.reset(new Memory);  // make_unique would zero it.
  made.envelope_ = made.memory_->make();
  return made;
}

}  // namespace sinew::internal
