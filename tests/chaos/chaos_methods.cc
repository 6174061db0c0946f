#include "sinew/tests/chaos/chaos_methods.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/tests/process/churn_methods.h"

namespace chaos {
namespace {

constexpr auto kAnswerDelay = std::chrono::milliseconds(300);

/// Gives answers after kAnswerDelay, as long as the process lives. Thread-safe.
class LateAnswers {
 public:
  LateAnswers() {
    std::thread([this] { run(); }).detach();
  }
  sinew::Future<std::int64_t> add(std::int64_t value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answers_.push_back({std::chrono::steady_clock::now() + kAnswerDelay, value, {}});
    changed_.notify_one();
    return answers_.back().promise.future();
  }

 private:
  struct Answer {
    std::chrono::steady_clock::time_point due;
    std::int64_t value = 0;
    sinew::Promise<std::int64_t> promise;
  };

  Answer next() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !answers_.empty(); });
    Answer first = std::move(answers_.front());
    answers_.pop_front();
    return first;
  }
  void run() {
    while (true) {
      const Answer answer = next();
      std::this_thread::sleep_until(answer.due);
      answer.promise.set_value(answer.value);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Answer> answers_;
};

std::shared_ptr<Belongings>& belongings_slot() {
  static auto& slot = *new std::shared_ptr<Belongings>(std::make_shared<Belongings>());
  return slot;
}

std::unique_ptr<HistoryFile>& history_slot() {
  static auto& slot = *new std::unique_ptr<HistoryFile>();
  return slot;
}

}  // namespace

std::string counter_of(const sinew::WorkerInfo& worker) {
  return absl::StrCat(worker.name, ":", absl::Hex(worker.incarnation.value));
}

std::string diary_of(const sinew::WorkerInfo& worker) {
  return absl::StrCat("ordered diary ", counter_of(worker));
}
std::string stream_of(const sinew::WorkerInfo& worker) {
  return absl::StrCat("ordered stream ", counter_of(worker));
}

void Diary::note(const std::string& id) {
  if (std::exchange(is_open_, true)) throw std::logic_error("two write into one diary at once");
  history().applied(id, diary_of(sinew::current_worker().info()));
  is_open_ = false;
}

std::int64_t take_all(sinew::Stream<std::string> ids) {
  std::int64_t count = 0;
  for (const std::string& id : ids) {
    history().applied(id, stream_of(sinew::current_worker().info()));
    ++count;
  }
  return count;
}

std::int64_t Counter::increment(const std::string& id) {
  history().applied(id, counter_of(sinew::current_worker().info()));
  return ++count_;
}

Model::Model() : weight_(at::zeros({kSize}).set_requires_grad(true)) {}
sinew::RRef<at::Tensor> Model::parameter() { return sinew::make_rref(weight_); }
at::Tensor Model::pick(std::int64_t index) { return weight_[index]; }
at::Tensor Model::value() { return weight_.detach().clone(); }

std::shared_ptr<Belongings> belongings() { return std::atomic_load(&belongings_slot()); }
void begin_anew() { std::atomic_store(&belongings_slot(), std::make_shared<Belongings>()); }

HistoryFile& history() { return *history_slot(); }
void set_history(std::unique_ptr<HistoryFile> file) { history_slot() = std::move(file); }

std::int64_t increment(const std::string& id) { return belongings()->counter->increment(id); }
sinew::Future<std::int64_t> increment_and_answer_late(const std::string& id) {
  static LateAnswers& answers = *new LateAnswers();
  return answers.add(increment(id));
}
at::Tensor scale(const at::Tensor& tensor, double factor) { return tensor * factor; }

sinew::MethodTable methods() {
  sinew::MethodTable table = churn::methods();
  table.add<&Counter::increment>().add<&Model::parameter>().add<&Model::pick>();
  table.add<&Diary::note>(sinew::one_at_a_time()).add<&take_all>();
  table.add<&Model::value>().add<&increment>().add<&increment_and_answer_late>().add<&scale>();
  return table;
}

}  // namespace chaos
