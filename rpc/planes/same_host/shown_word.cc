#include "sinew/rpc/planes/same_host/shown_word.h"

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/challenge.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kResting = 1024;

struct RestingCells {
  Mutex mutex;
  std::deque<std::unique_ptr<ShownWord::Cell>> cells ABSL_GUARDED_BY(mutex);
};

RestingCells& resting() {
  static auto& all = *new RestingCells();
  return all;
}

std::unique_ptr<ShownWord::Cell> take_cell() {
  RestingCells& all = resting();
  MutexLock lock(all.mutex);
  if (all.cells.size() < kResting) return std::make_unique<ShownWord::Cell>();
  std::unique_ptr<ShownWord::Cell> rested = std::move(all.cells.front());
  all.cells.pop_front();
  return rested;
}

}  // namespace

ShownWord::ShownWord() : word_(new_challenge()), cell_(take_cell()) {
  static_assert(kBytes == kChallengeBytes);
  for (std::size_t i = 0; i < kBytes; ++i) (*cell_)[i] = word_[i];
}

ShownWord::~ShownWord() {
  clear();
  RestingCells& all = resting();
  MutexLock lock(all.mutex);
  all.cells.push_back(std::move(cell_));
}

std::uint64_t ShownWord::address() const { return reinterpret_cast<std::uintptr_t>(cell_->data()); }

void ShownWord::clear() {
  // Exchanges, not stores: what the caller frees afterwards must not be written to before them.
  for (std::atomic<char>& byte : *cell_) byte.exchange(0);
}

}  // namespace sinew::internal
