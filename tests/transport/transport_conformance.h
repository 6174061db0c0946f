#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// Makes transports of one kind that can reach each other.
class TransportFixture {
 public:
  virtual ~TransportFixture() = default;
  /// A transport that has not been started.
  virtual std::unique_ptr<Transport> make(const Transport::Limits& limits) = 0;
  /// An address where nobody listens.
  virtual std::string closed_address() = 0;
  /// What a foreign client does: calls and waits.
  virtual absl::StatusOr<Frame> unary_call(const std::string& address, Frame request,
                                           std::chrono::nanoseconds timeout) = 0;
};

struct TransportKind {
  std::string name;
  std::function<std::unique_ptr<TransportFixture>()> make;
  /// Whether frames that wait together are delivered together.
  bool coalesces = true;
};
inline std::ostream& operator<<(std::ostream& out, const TransportKind& kind) {
  return out << kind.name;
}

/// What every transport must do. A transport joins with a file that instantiates this suite:
///
///   INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance, testing::Values(TransportKind{...}),
///                            conformance_name);
class TransportConformance : public ::testing::TestWithParam<TransportKind> {
 protected:
  std::unique_ptr<TransportFixture> fixture_ = GetParam().make();
};

inline std::string conformance_name(const ::testing::TestParamInfo<TransportKind>& info) {
  return info.param.name;
}

}  // namespace sinew::internal
