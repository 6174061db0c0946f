#pragma once

#include <memory>

namespace sinew::proto {
class Envelope;
}

namespace sinew::internal {

/// An Envelope to be read into, and all that small ones hold but longer texts, in one piece of
/// memory: of an answer another thread lets go than the one that reads it, and for each piece that
/// may take a lock of the allocator that the reading thread needs too. Empty until it is made.
class ReceivedEnvelope {
 public:
  ReceivedEnvelope();
  static ReceivedEnvelope make();
  bool is_made() const { return envelope_ != nullptr; }
  ReceivedEnvelope(ReceivedEnvelope&&) noexcept;
  ReceivedEnvelope& operator=(ReceivedEnvelope&&) noexcept;
  ~ReceivedEnvelope();
  proto::Envelope& operator*() const { return *envelope_; }
  proto::Envelope* operator->() const { return envelope_; }

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
  proto::Envelope* envelope_ = nullptr;
};

}  // namespace sinew::internal
