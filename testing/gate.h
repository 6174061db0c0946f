#pragma once

#include <memory>

namespace sinew::testing {

/// A door that handlers of a test come to, closed at first: so a test knows that they run, and
/// decides when they go on. Thread-safe.
///
///     sinew::testing::Gate gate;  // where the handler finds it
///     void slow() { gate.pass(); }
///     SINEW_METHOD(slow);
///
///     auto call = learner.async<&slow>();
///     ASSERT_TRUE(gate.wait_for_arrivals(1));  // it runs now
///     cluster.kill("actor");
///     gate.open();
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Blocks its thread, of which Sinew knows nothing, until open(), for kPatience at most.
  void pass();
  /// Waits until so many threads have called pass(), for kPatience at most. False if they have not.
  bool wait_for_arrivals(int count);
  void open();
  /// And forgets which threads have arrived.
  void close();
  int arrivals() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace sinew::testing
