#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/sinew.h"

/// What the workers of tools/churn ask of each other. Every answer can be checked by who asked.
namespace churn {

inline std::string text_of(const sinew::WorkerInfo& worker) {
  return absl::StrCat(worker.rank, ":", worker.name, ":", absl::Hex(worker.incarnation.value));
}

/// Lives behind references only; it knows where it was made, and what it was made with.
class Token {
 public:
  explicit Token(std::int64_t value) : value_(value) {}
  std::int64_t get() const { return value_; }

 private:
  const std::int64_t value_;
};

/// What a worker has been asked, and given to keep. Thread-safe.
class Memory {
 public:
  /// How often it has been told so, this time included.
  int note(std::uint64_t asker, std::int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ++seen_[{asker, number}];
  }
  /// Keeps the last few. The one that has to go for it goes.
  void keep(sinew::RRef<Token> token) {
    sinew::RRef<Token> oldest;  // destroyed without the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    kept_.push_back(std::move(token));
    if (kept_.size() <= kMostKept) return;
    oldest = std::move(kept_.front());
    kept_.pop_front();
  }
  /// Gives all up, and keeps nothing from now on.
  void close() {
    std::deque<sinew::RRef<Token>> dropped;
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    dropped.swap(kept_);
  }

 private:
  static constexpr std::size_t kMostKept = 8;

  std::mutex mutex_;
  bool closed_ = false;
  std::map<std::pair<std::uint64_t, std::int64_t>, int> seen_;
  std::deque<sinew::RRef<Token>> kept_;
};

/// Of the one worker that this process has at a time; a new one begins with a new one.
inline std::shared_ptr<Memory>& memory_slot() {
  static auto& slot = *new std::shared_ptr<Memory>(std::make_shared<Memory>());
  return slot;
}
inline std::shared_ptr<Memory> memory() { return std::atomic_load(&memory_slot()); }
inline void forget() { std::atomic_store(&memory_slot(), std::make_shared<Memory>()); }

/// Tells who answers, whom it answers, and how often it was asked that: once, if all is well.
inline std::string who(std::uint64_t asker, std::int64_t number) {
  const int times = memory()->note(asker, number);
  return absl::StrCat(text_of(sinew::current_worker().info()), " ", absl::Hex(asker), " ", number,
                      " ", times);
}
/// What `who` must answer.
inline std::string right_answer(const sinew::WorkerInfo& asked, std::uint64_t asker,
                                std::int64_t number) {
  return absl::StrCat(text_of(asked), " ", absl::Hex(asker), " ", number, " 1");
}

inline std::int64_t look_at(const sinew::RRef<Token>& token);
inline std::int64_t look_at_and_keep(const sinew::RRef<Token>& token);

}  // namespace churn

SINEW_SERVICE(churn::Token, (std::int64_t));
SINEW_METHOD(churn::Token::get, churn::who, churn::look_at, churn::look_at_and_keep);

namespace churn {

inline std::int64_t look_at(const sinew::RRef<Token>& token) { return token.call<&Token::get>(); }
inline std::int64_t look_at_and_keep(const sinew::RRef<Token>& token) {
  const std::int64_t value = look_at(token);
  memory()->keep(token);
  return value;
}

inline sinew::MethodTable methods() {
  sinew::MethodTable table;
  table.serve<Token>().add<&Token::get>();
  table.add<&who>().add<&look_at>().add<&look_at_and_keep>();
  return table;
}

}  // namespace churn
