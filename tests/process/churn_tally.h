#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "sinew/sinew.h"

namespace churn {

/// What the work of a worker has come to so far. Thread-safe.
class Tally {
 public:
  void right() { ++right_; }
  /// That is never to happen: told at once.
  void wrong(const std::string& what);
  /// The error counts as one that a loss explains, or is told at once.
  void failed(const sinew::RpcError& error, const std::string& what);
  /// "right=10 UNAVAILABLE=2"
  std::string text() const;

 private:
  std::atomic<std::int64_t> right_{0};
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> errors_;
};

/// Writes a line that begins with "event " to stdout.
void tell(const std::string& event);

}  // namespace churn
