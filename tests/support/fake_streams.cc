#include "sinew/tests/support/fake_streams.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sinew::testing {

FakeStreams& FakeStreams::of_process() {
  // Never destroyed: tensors may outlive main().
  static FakeStreams* const streams = new FakeStreams();
  return *streams;
}

void FakeStreams::allocated(const void* memory, std::size_t size_bytes) {
  internal::MutexLock lock(mutex_);
  blocks_[reinterpret_cast<std::uintptr_t>(memory)] = Block{size_bytes, {}, 0};
}

void FakeStreams::freed(const void* memory) {
  internal::MutexLock lock(mutex_);
  blocks_.erase(reinterpret_cast<std::uintptr_t>(memory));
}

FakeStreams::Block* FakeStreams::find_locked(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  --after;
  return address < after->first + std::max<std::size_t>(after->second.size_bytes, 1)
             ? &after->second
             : nullptr;
}

std::string FakeStreams::text_of(StreamKey stream) {
  return absl::StrCat("stream ", stream.second, " of device ", stream.first);
}

void FakeStreams::on_read(const void* memory, c10::Stream stream) {
  internal::MutexLock lock(mutex_);
  const Block* block = find_locked(memory);
  const StreamKey reader = key_of(stream);
  if (block == nullptr || block->written_at == 0 || block->writer == reader) return;
  if (streams_[reader][block->writer] >= block->written_at) return;
  races_.push_back(absl::StrCat(text_of(reader), " reads what ", text_of(block->writer),
                                " writes, and is not behind it"));
}

void FakeStreams::on_write(const void* memory, c10::Stream stream) {
  internal::MutexLock lock(mutex_);
  Block* block = find_locked(memory);
  if (block == nullptr) return;
  block->writer = key_of(stream);
  block->written_at = ++streams_[block->writer][block->writer];
}

void FakeStreams::on_written_for_all(const void* memory) {
  internal::MutexLock lock(mutex_);
  if (Block* block = find_locked(memory)) block->written_at = 0;
}

void* FakeStreams::record(void* event, c10::Stream stream) {
  internal::MutexLock lock(mutex_);
  // Any number but null.
  if (event == nullptr) event = reinterpret_cast<void*>(next_event_++);  // NOLINT
  events_[event] = streams_[key_of(stream)];
  return event;
}

void FakeStreams::block(void* event, c10::Stream stream) {
  internal::MutexLock lock(mutex_);
  Time& waiting = streams_[key_of(stream)];
  for (const auto& [other, time] : events_.at(event)) {
    waiting[other] = std::max(waiting[other], time);
  }
}

void FakeStreams::destroy(void* event) {
  internal::MutexLock lock(mutex_);
  events_.erase(event);
}

std::vector<std::string> FakeStreams::take_races() {
  internal::MutexLock lock(mutex_);
  return std::exchange(races_, {});
}

std::size_t FakeStreams::events() const {
  internal::MutexLock lock(mutex_);
  return events_.size();
}

}  // namespace sinew::testing
