#pragma once

#include <cstdint>
#include <memory>

namespace sinew::proto {
class Envelope;
}

namespace sinew::internal {

/// An Envelope to be written and serialised, in memory that the thread has kept of the one before
/// it if that was a small one: of its call or reply, their texts and their arguments, but not of
/// what is within those. Any thread may let go of it, which is the one that keeps it.
class ScratchEnvelope {
 public:
  /// What it is for. Of each a thread keeps one.
  enum class Kind : std::uint8_t { kCall = 0, kReply = 1 };
  static constexpr int kKinds = 2;

  explicit ScratchEnvelope(Kind kind);
  ~ScratchEnvelope();
  ScratchEnvelope(const ScratchEnvelope&) = delete;
  ScratchEnvelope& operator=(const ScratchEnvelope&) = delete;

  proto::Envelope& operator*() { return *envelope_; }
  const proto::Envelope& operator*() const { return *envelope_; }
  proto::Envelope* operator->() { return envelope_.get(); }
  const proto::Envelope* operator->() const { return envelope_.get(); }

  /// What it holds now has been serialised; nothing is kept of one that never was, since its size
  /// is not known.
  void note_serialised() { serialised_ = true; }

 private:
  const Kind kind_;
  bool serialised_ = false;
  std::unique_ptr<proto::Envelope> envelope_;
};

}  // namespace sinew::internal
