#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "sinew/sinew.h"
#include "sinew/tests/chaos/history_file.h"

/// What the workers of tests/chaos ask of each other. Whether it was done, and how often, can be
/// told in the end.
namespace chaos {

/// "w1:3f": the counter of one life of a worker.
std::string counter_of(const sinew::WorkerInfo& worker);
/// What is applied there in the order of each caller: see tests/docker/lab/history.py.
std::string diary_of(const sinew::WorkerInfo& worker);
std::string stream_of(const sinew::WorkerInfo& worker);

/// Published as "counter" by each worker. Thread-safe.
class Counter {
 public:
  /// Notes the id in the owner's history before it answers. Gives the count.
  std::int64_t increment(const std::string& id);

 private:
  std::atomic<std::int64_t> count_{0};
};

/// Published as "diary" by each worker. Is called by one at a time: without a mutex.
class Diary {
 public:
  /// Notes the id in the owner's history. Throws where another one is at it.
  void note(const std::string& id);

 private:
  bool is_open_ = false;
};

/// Parameters that tell which steps are in them: each step takes one element that no other takes,
/// and makes it -1. Published as "model" by the parameter servers.
class Model {
 public:
  static constexpr std::int64_t kSize = 1 << 18;

  Model();
  sinew::RRef<at::Tensor> parameter();
  /// The element. Its gradient is one there, and zero elsewhere.
  at::Tensor pick(std::int64_t index);
  at::Tensor value();

 private:
  at::Tensor weight_;
};

/// What others have at this process's present worker. A new worker begins with new ones.
struct Belongings {
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  std::shared_ptr<Diary> diary = std::make_shared<Diary>();
  std::shared_ptr<Model> model = std::make_shared<Model>();
};
std::shared_ptr<Belongings> belongings();
void begin_anew();

/// That of the process; set it before the first worker joins.
HistoryFile& history();
void set_history(std::unique_ptr<HistoryFile> file);

/// The counter's, without a reference.
std::int64_t increment(const std::string& id);
/// The same, but the answer comes some tenths of a second later: when the owner or the way to it is
/// lost meanwhile, the increment was made. Holds no thread.
sinew::Future<std::int64_t> increment_and_answer_late(const std::string& id);
/// Notes all ids of the stream in the owner's history; how many.
std::int64_t take_all(sinew::Stream<std::string> ids);
at::Tensor scale(const at::Tensor& tensor, double factor);

sinew::MethodTable methods();

}  // namespace chaos

SINEW_METHOD(chaos::Counter::increment, chaos::Diary::note, chaos::take_all,
             chaos::Model::parameter, chaos::Model::pick, chaos::Model::value, chaos::increment,
             chaos::increment_and_answer_late, chaos::scale);
