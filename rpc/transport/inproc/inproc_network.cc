#include "sinew/rpc/transport/inproc/inproc_network.h"

#include <utility>

#include "sinew/rpc/transport/inproc/internal/inproc_core.h"

namespace sinew::internal {

InprocNetwork::InprocNetwork(InprocMode mode) : core_(std::make_shared<InprocCore>(mode)) {}
InprocNetwork::~InprocNetwork() = default;

InprocMode InprocNetwork::mode() const { return core_->mode(); }
void InprocNetwork::set_chooser(Chooser chooser) { core_->set_chooser(std::move(chooser)); }
void InprocNetwork::set_max_frames_per_event(std::size_t frames) {
  core_->set_max_frames_per_event(frames);
}

std::vector<InprocEvent> InprocNetwork::events() const { return core_->events(); }
bool InprocNetwork::step() { return core_->step(); }
std::size_t InprocNetwork::run_until_idle(std::size_t max_steps) {
  std::size_t steps = 0;
  while (steps < max_steps && core_->step()) ++steps;
  return steps;
}

std::size_t InprocNetwork::break_connections(std::string_view one, std::string_view other) {
  return core_->break_connections(one, other);
}
bool InprocNetwork::break_connection(std::uint64_t connection) {
  return core_->break_connection(connection);
}
InprocNetwork::Seat InprocNetwork::take_seat(const std::string& name, const std::string& address) {
  MutexLock lock(mutex_);
  Seat& seat = seats_[name];
  const bool was_taken = seat.was_taken;
  if (seat.address.empty() && !address.empty()) seat = {address, true};
  return {seat.address, was_taken};
}
void InprocNetwork::leave_seat(const std::string& name, const std::string& address) {
  MutexLock lock(mutex_);
  Seat& seat = seats_[name];
  if (seat.address == address) seat.address.clear();
}
void InprocNetwork::freeze(std::string_view address) { core_->set_frozen(address, true); }
void InprocNetwork::thaw(std::string_view address) { core_->set_frozen(address, false); }

}  // namespace sinew::internal
