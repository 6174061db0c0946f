#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "sinew/tests/link/support/world.h"

namespace sinew::internal::link_model {

/// How often each thing may happen in one run.
struct Faults {
  /// A connection breaks: each end hears of it at some time, and what is on its way may be lost.
  int breaks = 0;
  /// A connection swallows everything from now on, and nobody hears of it.
  int swallowed = 0;
  /// A packet comes twice.
  int duplicates = 0;
  /// A packet, or a hello, comes on a connection that its receiver has closed.
  int late = 0;
  /// A packet passes the one before it.
  int swaps = 0;
  /// A worker dies; it comes back as somebody else.
  int crashes = 0;
  /// Somebody who has no connection is asked to open one at once.
  int asks = 0;
  /// A worker ends its link.
  int leaves = 0;
  /// Time passes while packets are on their way.
  int ticks = 0;
  /// Time passes, and one worker does not run meanwhile.
  int sleeps = 0;
};

struct Scenario {
  const char* name = "";
  Settings settings;
  Faults faults;
  /// The workers have a connection when it begins.
  bool connected = true;
  /// Time does not pass while more packets than that are on their way to somebody.
  std::size_t most_on_their_way = 1000;
  /// By how much time passes; 0: until somebody has something to do.
  std::chrono::nanoseconds tick{0};
  /// No link may end, since nothing happens that it could not bear.
  bool survives = false;
};

struct Exploration {
  std::size_t states = 0;
  std::size_t transitions = 0;
  /// Runs that were brought to their end with a network that behaves.
  std::size_t endings = 0;
  /// The longest time that one of those took.
  std::chrono::nanoseconds longest{0};
  /// Empty when every invariant held; else which one broke, and the events that led there.
  std::string violation;
};

/// Visits every state that can be reached by any order of deliveries, steps of programs and faults
/// of the scenario, and judges the invariants of docs/link.md in each. Wherever nothing is left to
/// do, and in some of the other states, it lets the network behave from there on: then every call
/// must end, nothing be kept, and both ends agree on a connection.
Exploration explore(const Scenario& scenario);

}  // namespace sinew::internal::link_model
