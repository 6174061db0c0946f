#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/equal.h"
#include "sinew/sinew.h"

// Methods that workers of tests serve, in one process or in several. Each worker has a state of its
// own, also when it shares its process with others.
namespace testapp {

/// Lives behind references only: it has a mutex.
class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  int get() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return value_;
  }
  int add(int by) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return value_ += by;
  }

 private:
  std::mutex mutex_;
  int value_;
};

/// What one worker keeps between calls.
struct State {
  std::mutex mutex;
  std::map<std::string, sinew::RRef<Counter>> kept;
  std::map<int, int> executions;
  std::vector<sinew::Promise<int>> stalled;
};

inline State& state_of(const sinew::Worker& worker) {
  static std::mutex mutex;
  static auto& states = *new std::map<std::uint64_t, std::unique_ptr<State>>();
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<State>& state = states[worker.info().incarnation.value];
  if (state == nullptr) state = std::make_unique<State>();
  return *state;
}
inline State& state() { return state_of(sinew::current_worker()); }

inline int add(int a, int b) { return a + b; }
inline int fail(const std::string& text) { throw std::out_of_range(text); }
/// Holds its thread, of which Sinew knows nothing.
inline int doze(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return ms;
}
inline std::string echo(const std::string& text) { return text; }

/// Notes that the call of this number has run.
inline int count(int number) {
  State& mine = state();
  const std::lock_guard<std::mutex> lock(mine.mutex);
  return ++mine.executions[number];
}
/// How often each of the numbers has run.
inline std::map<int, int> executions() {
  State& mine = state();
  const std::lock_guard<std::mutex> lock(mine.mutex);
  return mine.executions;
}

/// Bytes that tell their position and `seed`.
inline at::Tensor make_pattern(std::int64_t size, std::int64_t seed) {
  const at::Tensor tensor = at::empty({size}, at::kByte);
  auto* const bytes = tensor.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::uint8_t>(i * 31 + (i >> 8) * 7 + (i >> 16) + seed);
  }
  return tensor;
}
inline at::Tensor echo_tensor(const at::Tensor& tensor) { return tensor; }
inline bool has_pattern(const at::Tensor& tensor, std::int64_t seed) {
  return at::equal(tensor, make_pattern(tensor.numel(), seed));
}

/// Answers when somebody calls release(). Holds no thread.
inline sinew::Future<int> stall() {
  State& mine = state();
  const std::lock_guard<std::mutex> lock(mine.mutex);
  return mine.stalled.emplace_back().future();
}
/// Gives up what waits in stall() at `worker`.
inline void drop_stalled(const sinew::Worker& worker) {
  State& mine = state_of(worker);
  std::vector<sinew::Promise<int>> dropped;
  const std::lock_guard<std::mutex> lock(mine.mutex);
  dropped.swap(mine.stalled);
}
inline int stalled() {
  State& mine = state();
  const std::lock_guard<std::mutex> lock(mine.mutex);
  return static_cast<int>(mine.stalled.size());
}
/// Answers what waits in stall() at this worker.
inline void release_at(const sinew::Worker& worker) {
  State& mine = state_of(worker);
  std::vector<sinew::Promise<int>> stalled;
  {
    const std::lock_guard<std::mutex> lock(mine.mutex);
    stalled.swap(mine.stalled);
  }
  for (const sinew::Promise<int>& promise : stalled) promise.try_set_value(1);
}
inline void release() { release_at(sinew::current_worker()); }

/// Keeps a reference; drop() gives it up.
inline void keep(const std::string& name, const sinew::RRef<Counter>& counter) {
  State& mine = state();
  const std::lock_guard<std::mutex> lock(mine.mutex);
  mine.kept[name] = counter;
}
inline sinew::RRef<Counter> kept(const std::string& name) {
  State& mine = state();
  const std::lock_guard<std::mutex> lock(mine.mutex);
  return mine.kept.at(name);
}
inline void drop(const std::string& name) {
  State& mine = state();
  const std::lock_guard<std::mutex> lock(mine.mutex);
  mine.kept.erase(name);
}
inline bool confirmed(const sinew::RRef<Counter>& counter);
inline int add_to(const sinew::RRef<Counter>& counter, int by);
inline int add_to_kept(const std::string& name, int by);
inline int add_to_all(const std::vector<sinew::RRef<Counter>>& counters, int by);
/// Passes it on to another worker, which does the same as add_to.
inline int add_through(const std::string& peer, const sinew::RRef<Counter>& counter, int by);
/// Counters of its own, or of the worker named.
inline std::map<std::string, sinew::RRef<Counter>> make_counters(const std::string& peer,
                                                                 int count);
inline sinew::RRef<Counter> same(const sinew::RRef<Counter>& counter) { return counter; }
inline std::int64_t counter_value(const std::string& name) {
  return sinew::current_worker().counters()[name];
}
inline std::vector<std::string> worker_names() {
  std::vector<std::string> names;
  for (const sinew::WorkerInfo& worker : sinew::current_worker().workers()) {
    names.push_back(worker.name);
  }
  return names;
}

}  // namespace testapp

SINEW_SERVICE(testapp::Counter, (int));
SINEW_METHOD(testapp::Counter::get, testapp::Counter::add, testapp::add, testapp::fail,
             testapp::doze, testapp::echo, testapp::count, testapp::executions,
             testapp::make_pattern, testapp::echo_tensor, testapp::has_pattern, testapp::stall,
             testapp::stalled, testapp::release, testapp::keep, testapp::kept, testapp::drop,
             testapp::confirmed, testapp::add_to, testapp::add_to_kept, testapp::add_to_all,
             testapp::add_through, testapp::make_counters, testapp::same, testapp::counter_value,
             testapp::worker_names);

namespace testapp {

inline bool confirmed(const sinew::RRef<Counter>& counter) { return counter.confirmed_by_owner(); }

inline int add_to(const sinew::RRef<Counter>& counter, int by) {
  return counter.call<&Counter::add>(by);
}

inline int add_to_kept(const std::string& name, int by) { return add_to(kept(name), by); }

inline int add_to_all(const std::vector<sinew::RRef<Counter>>& counters, int by) {
  int sum = 0;
  for (const sinew::RRef<Counter>& counter : counters) sum += add_to(counter, by);
  return sum;
}

inline int add_through(const std::string& peer, const sinew::RRef<Counter>& counter, int by) {
  return sinew::current_worker().peer(peer).call<&add_to>(counter, by);
}

inline std::map<std::string, sinew::RRef<Counter>> make_counters(const std::string& peer,
                                                                 int count) {
  const sinew::Worker worker = sinew::current_worker();
  std::map<std::string, sinew::RRef<Counter>> made;
  for (int i = 0; i < count; ++i) {
    made[std::to_string(i)] = worker.peer(peer).remote<Counter>(i);
  }
  return made;
}

inline sinew::MethodTable methods() {
  sinew::MethodTable table;
  table.serve<Counter>().add<&Counter::get>().add<&Counter::add>();
  table.add<&stall>().add<&stalled>().add<&release>();
  table.add<&add>().add<&fail>().add<&doze>().add<&echo>().add<&count>().add<&executions>();
  table.add<&keep>().add<&kept>().add<&drop>().add<&confirmed>().add<&add_to>().add<&add_to_kept>();
  table.add<&add_to_all>().add<&add_through>().add<&make_counters>().add<&same>();
  table.add<&make_pattern>().add<&echo_tensor>().add<&has_pattern>();
  table.add<&counter_value>().add<&worker_names>();
  return table;
}

}  // namespace testapp
