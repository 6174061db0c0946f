#pragma once

#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include "gtest/gtest.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/threads/executor.h"

namespace sinew {

using internal::Executor;

struct NoDefault {
  explicit NoDefault(int v) : value(v) {}
  int value;
};

inline std::exception_ptr boom(const std::string& text = "boom") {
  return std::make_exception_ptr(std::invalid_argument(text));
}

template <class F>
ErrorInfo error_of(F f) {
  try {
    f();
  } catch (const RpcError& error) {
    return error.info();
  }
  ADD_FAILURE() << "no RpcError was thrown";
  return {};
}

inline std::string text_of(const std::exception_ptr& error) {
  return error == nullptr ? "" : internal::describe(error).remote_message;
}

// Each test that takes the fixture runs with callbacks inline and with callbacks on an executor.
class FutureTest : public ::testing::TestWithParam<bool> {
 protected:
  FutureTest() {
    if (GetParam()) executor_.emplace(Executor::Options());
  }
  template <class T>
  Promise<T> make() {
    return Promise<T>(executor_ ? &*executor_ : nullptr);
  }
  std::optional<Executor> executor_;
};

}  // namespace sinew
