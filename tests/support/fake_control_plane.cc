#include "sinew/tests/support/fake_control_plane.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::testing {

using internal::ControlHandler;
using internal::MutexLock;
using internal::Task;

bool StepRunner::post(Task task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  return true;
}

Task StepRunner::next() {
  MutexLock lock(mutex_);
  if (tasks_.empty()) return nullptr;
  const std::size_t index = random_ ? (*random_)() % tasks_.size() : 0;
  Task task = std::move(tasks_[index]);
  tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(index));
  return task;
}

std::size_t StepRunner::run_until_idle() {
  std::size_t count = 0;
  while (Task task = next()) {
    std::move(task)();
    ++count;
  }
  return count;
}

void advance_in_steps(StepRunner& runner, ManualClock& clock, std::chrono::nanoseconds time,
                      std::chrono::nanoseconds step) {
  runner.run_until_idle();
  for (std::chrono::nanoseconds done{}; done < time; done += step) {
    clock.advance(step);
    runner.run_until_idle();
  }
}

void FakeControlNetwork::kill(const std::string& address) {
  std::vector<Promise<std::string>> broken;
  {
    MutexLock lock(mutex_);
    planes_.erase(address);
    const auto range = open_.equal_range(address);
    for (auto each = range.first; each != range.second; ++each) broken.push_back(each->second);
    open_.erase(range.first, range.second);
  }
  for (const Promise<std::string>& answer : broken) {
    answer.try_set_error(
        internal::make_error(absl::UnavailableError(absl::StrCat(address, " is lost"))));
  }
}

void FakeControlNetwork::silence(const std::string& address) {
  MutexLock lock(mutex_);
  silent_.insert(address);
}

void FakeControlNetwork::mute(const std::string& address) {
  MutexLock lock(mutex_);
  mute_.insert(address);
}

void FakeControlNetwork::cut(const std::string& one, const std::string& other) {
  MutexLock lock(mutex_);
  cut_.insert({one, other});
  cut_.insert({other, one});
}

void FakeControlNetwork::cover_names_and(const std::string& address) {
  MutexLock lock(mutex_);
  covered_ = address;
}

bool FakeControlNetwork::is_proved(const internal::Contact& contact) const {
  MutexLock lock(mutex_);
  const auto there = planes_.find(contact.address);
  return !covered_.has_value() || contact.address == *covered_ || there == planes_.end() ||
         there->second->self().name == contact.name;
}

std::vector<std::string> FakeControlNetwork::log() const {
  MutexLock lock(mutex_);
  return log_;
}

Future<std::string> FakeControlNetwork::call(const FakeControlPlane& from,
                                             const std::string& address, absl::Status if_dead,
                                             std::string method, std::string body,
                                             std::chrono::nanoseconds timeout) {
  const Promise<std::string> answer(nullptr);
  const auto when = internal::deadline_after(clock_.now(), timeout);
  if (when != internal::Clock::TimePoint::max()) {
    timers_.run_at(when, [answer, method] {
      answer.try_set_error(internal::make_error(
          absl::DeadlineExceededError(absl::StrCat(method, " was not answered in time"))));
    });
  }
  {
    MutexLock lock(mutex_);
    open_.emplace(address, answer);
  }
  runner_->post([this, from = from.self(), own = from.address(), address,
                 if_dead = std::move(if_dead), method = std::move(method), body = std::move(body),
                 answer]() mutable {
    bool is_cut = false;
    {
      MutexLock lock(mutex_);
      if (silent_.count(address) > 0) return;
      is_cut = cut_.count({own, address}) > 0;
    }
    if (is_cut) {
      answer.try_set_error(internal::make_error(absl::UnavailableError("the line is cut")));
      return;
    }
    deliver(from, address, if_dead, method, std::move(body), answer);
  });
  return answer.future();
}

void FakeControlNetwork::deliver(const WorkerInfo& from, const std::string& address,
                                 const absl::Status& if_dead, const std::string& method,
                                 std::string body, const Promise<std::string>& answer) {
  ControlHandler handler;
  bool is_muted = false;
  {
    MutexLock lock(mutex_);
    const auto plane = planes_.find(address);
    if (plane != planes_.end()) {
      const auto found = plane->second->handlers_.find(method);
      if (found != plane->second->handlers_.end()) handler = found->second;
      log_.push_back(absl::StrCat(method, ">", plane->second->self().name));
    }
    is_muted = mute_.count(address) > 0;
  }
  if (!handler) {
    answer.try_set_error(internal::make_error(if_dead));
    return;
  }
  const Future<std::string> reply = handler(from, std::move(body));
  if (is_muted) return;
  reply.on_done([runner = runner_, answer](const Future<std::string>& done) {
    runner->post([answer, done] {
      if (const std::exception_ptr error = done.error()) {
        answer.try_set_error(error);
      } else {
        answer.try_set_value(done.value());
      }
    });
  });
}

FakeControlPlane::FakeControlPlane(FakeControlNetwork& network, WorkerInfo self,
                                   std::string address)
    : network_(network), self_(std::move(self)), address_(std::move(address)) {
  MutexLock lock(network_.mutex_);
  network_.planes_[address_] = this;
}

FakeControlPlane::~FakeControlPlane() {
  MutexLock lock(network_.mutex_);
  const auto self = network_.planes_.find(address_);
  if (self != network_.planes_.end() && self->second == this) network_.planes_.erase(self);
}

void FakeControlPlane::add_control_method(std::string name, ControlHandler handler) {
  handlers_[std::move(name)] = std::move(handler);
}

Future<std::string> FakeControlPlane::control_call(const WorkerInfo& to, std::string_view method,
                                                   std::string body,
                                                   std::chrono::nanoseconds timeout) {
  std::string address = absl::StrCat("dead:", to.name);
  {
    MutexLock lock(network_.mutex_);
    for (const auto& [where, plane] : network_.planes_) {
      const WorkerInfo& other = plane->self();
      if (other.name == to.name && other.incarnation == to.incarnation) address = where;
    }
  }
  return network_.call(*this, address,
                       absl::UnavailableError(absl::StrCat("worker '", to.name, "' is lost")),
                       std::string(method), std::move(body), timeout);
}

Future<std::string> FakeControlPlane::control_call_address(const internal::Contact& contact,
                                                           std::string_view method,
                                                           std::string body,
                                                           std::chrono::nanoseconds timeout) {
  if (!network_.is_proved(contact)) {
    return make_failed_future<std::string>(internal::make_error(
        absl::UnauthenticatedError(absl::StrCat("no certificate covers '", contact.address, "'"))));
  }
  return network_.call(*this, contact.address,
                       absl::NotFoundError(absl::StrCat(contact.address, " refuses")),
                       std::string(method), std::move(body), timeout);
}

}  // namespace sinew::testing
