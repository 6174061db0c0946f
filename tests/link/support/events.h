#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "sinew/tests/link/support/world.h"

namespace sinew::internal::link_model {

/// Something that can happen in a world.
struct Event {
  enum class What : std::uint8_t {
    kHello,
    kAnswer,
    kJoin,
    kDeliver,
    kDeliverTwice,
    kPayloads,
    kNotice,
    kTurn,
    kAsk,
    kStart,
    kCancel,
    kStartHandler,
    kFinishHandler,
    kRestart,
    kBreak,
    kSwallow,
    kCrash,
    kLeave,
    kProveDeath,
    kTick,
    kSleep,
  };
  What what = What::kHello;
  std::size_t c = 0;
  int v = 0;
  Lane lane = Lane::kControl;
  std::size_t place = 0;
  bool late = false;

  std::string text() const;
};

/// What can happen next that is no fault. Events that are late come on a connection that their
/// receiver has closed.
std::vector<Event> steps_of(const World& world);

/// `time`: how much passes in a tick; 0: until somebody has something to do.
void happen(World& world, const Event& event, std::chrono::nanoseconds time);

/// Time passes, and whoever has something to do does it, but for the worker that sleeps (-1: none).
void tick(World& world, std::chrono::nanoseconds time, int sleeper);

/// Lets the network behave, and time pass, until all is quiet. What is wrong then; empty: nothing.
std::string settle(World& world);

}  // namespace sinew::internal::link_model
