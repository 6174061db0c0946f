#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rref/internal/ledger.h"

namespace sinew::internal::ledger {

inline constexpr Time kLease = std::chrono::seconds(15);
inline constexpr Time kDeadline = std::chrono::seconds(10);

WorkerInfo worker(const std::string& name, std::int32_t rank, std::uint64_t incarnation);
Description described();

template <class T>
std::vector<T> all_of(const Actions& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  }
  return found;
}

template <class T>
std::vector<T> sent(const Actions& actions) {
  std::vector<T> found;
  for (const Send& send : all_of<Send>(actions)) {
    if (const T* one = std::get_if<T>(&send.message)) found.push_back(*one);
  }
  return found;
}

/// Owner B, users A and C, and an outsider M, on one clock; messages are carried by hand.
class LedgerTest : public testing::Test {
 protected:
  struct Shared {
    ForkRecord record;
    ForkId fork;  // as its receiver knows it
  };

  LedgerTest();
  void TearDown() override;

  enum class Value { kMade, kAwaited };

  /// A makes a reference on B.
  Created create(Value value = Value::kMade);

  /// Carries every message of `actions` to its receiver, and what that causes; returns all other
  /// actions.
  Actions deliver(const Actions& actions, const WorkerInfo& from);

  Ledger& at(const WorkerInfo& who);

  /// A passes its fork to C, which becomes confirmed.
  Shared pass_to_c(const ForkId& fork);

  void expect_empty_after_one_lease();

  Ledger a;
  Ledger b;
  Ledger c;
  Ledger m;
  Time now = std::chrono::seconds(100);
};

}  // namespace sinew::internal::ledger
