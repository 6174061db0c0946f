#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace sinew::internal {

/// 16 bytes that cannot be predicted, in memory that the peer reads behind everything else: while
/// they are there, so is what was located for it. The memory of one that is gone shows zeros for
/// long: a peer that looks late should see that it is gone, and not what malloc put there.
/// Thread-safe.
class ShownWord {
 public:
  static constexpr std::size_t kBytes = 16;
  using Cell = std::array<std::atomic<char>, kBytes>;

  ShownWord();
  ~ShownWord();
  ShownWord(const ShownWord&) = delete;
  ShownWord& operator=(const ShownWord&) = delete;

  const std::string& word() const { return word_; }
  std::uint64_t address() const;
  /// From here on there are zeros.
  void clear();

 private:
  const std::string word_;
  std::unique_ptr<Cell> cell_;
};

}  // namespace sinew::internal
