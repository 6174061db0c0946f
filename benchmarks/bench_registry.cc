// `tools/bench registry`: what the list of a large job costs its registrar, by simulation. The
// table and the messages are the real ones, encoded; workers are as few lines as they can be, and
// the network takes no time. 1,000 and 10,000 workers join within ten seconds; then one per cent of
// them a minute end, are missed when their lease is over, and are started again under their names.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/rpc/membership/registrar/registry_codec.h"
#include "sinew/rpc/membership/registry/registry_table.h"

namespace {

using sinew::Incarnation;
using namespace sinew::internal;
using namespace sinew::internal::registry;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Time kStep = milliseconds(50);
constexpr Time kJoining = seconds(10);
constexpr Time kDying = minutes(2);
constexpr Time kLease = seconds(15);
constexpr Time kBeat = kLease / 7;
const std::string kDetails(120, 'd');

struct Worker {
  Record self;
  Version version;
  std::uint64_t echo = 0;
  Time next_beat{};
  bool is_in = false;
  bool is_alive = false;
};

class Job {
 public:
  Job(const sinew::bench::Options& figures, int workers)
      : figures_(figures),
        table_(options(), Time(0)),
        workers_(static_cast<std::size_t>(workers)) {}

  void run() {
    join();
    change();
  }

 private:
  void join() {
    std::uniform_int_distribution<std::int64_t> when(0, kJoining.count() - 1);
    for (std::size_t i = 0; i < workers_.size(); ++i) starts_.emplace(Time(when(random_)), i);
    run_until([&] { return in_ == workers_.size() && agree(); }, minutes(30));
    report("join_messages", static_cast<double>(sent_) / static_cast<double>(workers_.size()));
    report("join_MiB", static_cast<double>(bytes_) / (1 << 20));
    report("join_cpu_s", cpu_);
  }

  void change() {
    sent_ = heard_ = bytes_ = 0;
    cpu_ = 0;
    const Time begin = now_;
    next_death_ = now_;
    run_until([&] { return now_ >= begin + kDying; }, kDying);
    const double time = seconds_of(now_ - begin);
    const auto count = static_cast<double>(workers_.size());
    report("in_per_s", static_cast<double>(heard_) / time);
    report("out_per_s", static_cast<double>(sent_) / time);
    report("worker_per_s", static_cast<double>(sent_ + heard_) / time / count);
    report("MiB_per_s", static_cast<double>(bytes_) / (1 << 20) / time);
    report("cpu_percent", 100 * cpu_ / time);
    next_death_ = Time::max();
    const Time last = now_;
    run_until(
        [&] { return deaths_.empty() && starts_.empty() && in_ == workers_.size() && agree(); },
        minutes(5));
    report("agree_s", seconds_of(now_ - last));
  }

  static Options options() {
    Options options;
    options.registrar = {1};
    options.job = "job";
    options.instance = {1, 2, 3};
    options.lease = kLease;
    options.settle = Time::zero();
    return options;
  }
  static double seconds_of(Time time) { return std::chrono::duration<double>(time).count(); }
  void report(const char* what, double value) const {
    figures_.report(absl::StrCat("registry_", what, "_", workers_.size()), value);
  }

  template <class Condition>
  Time run_until(const Condition& is_done, Time most) {
    const Time begin = now_;
    while (!is_done() && now_ < begin + most) step();
    return now_ - begin;
  }

  void step() {
    now_ += kStep;
    if (now_ >= next_death_) {
      next_death_ += Time(minutes(1)) * 100 / static_cast<std::int64_t>(workers_.size());
      end(std::uniform_int_distribution<std::size_t>(0, workers_.size() - 1)(random_));
    }
    for (; !starts_.empty() && starts_.begin()->first <= now_; starts_.erase(starts_.begin())) {
      start(starts_.begin()->second);
    }
    for (Worker& worker : workers_) {
      if (worker.is_alive && now_ >= worker.next_beat) beat(worker);
    }
    if (now_ >= next_tick_) {
      next_tick_ = now_ + options().tick;
      deliver([&] { return table_.tick(now_); });
    }
  }

  void start(std::size_t index) {
    Worker& worker = workers_[index];
    worker = {};
    worker.self = {{"worker" + std::to_string(index), -1, {++last_incarnation_}}, kDetails};
    worker.is_alive = true;
    by_incarnation_[worker.self.worker.incarnation] = index;
    beat(worker);
  }
  // One that its host does not see: it is missed. It comes back at once.
  void end(std::size_t index) {
    Worker& worker = workers_[index];
    if (!worker.is_in || !worker.is_alive) return;
    deaths_[worker.self.worker.incarnation] = now_;
    worker.is_alive = worker.is_in = false;
    --in_;
    starts_.emplace(now_ + seconds(1), index);
  }
  void beat(Worker& worker) {
    worker.next_beat = now_ + kBeat;
    Request request = Join{worker.self, "job", 0};
    if (worker.is_in) request = Renew{worker.version};
    const std::string bytes = encode(AskedOfRegistrar{worker.echo, std::move(request), 1});
    ++heard_;
    deliver([&] {
      const AskedOfRegistrar asked = *decode_asked(bytes);
      return table_.handle(worker.self.worker.incarnation, asked.echo, asked.request, now_);
    });
  }

  /// `work` and the encoding of its messages is what the registrar does.
  template <class Work>
  void deliver(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    const Effects effects = work();
    for (const Send& send : effects) {
      for (const Incarnation to : send.to) {
        ++sent_;
        bytes_ += encode(SaidByRegistrar{{1}, kLease, 1, {{send.token, send.answer}}}).size();
        tell(to, send);
      }
    }
    cpu_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  void tell(Incarnation to, const Send& send) {
    const auto found = by_incarnation_.find(to);
    if (found == by_incarnation_.end()) return;
    Worker& worker = workers_[found->second];
    if (!worker.is_alive || worker.self.worker.incarnation != to) return;
    worker.echo = send.token;
    if (const auto* list = std::get_if<List>(&send.answer)) {
      worker.version = list->version;
      if (!worker.is_in) ++in_;
      worker.is_in = true;
    } else if (const auto* update = std::get_if<Update>(&send.answer)) {
      if (worker.is_in && update->since <= worker.version.count) worker.version = update->version;
      for (const Change& change : update->changes) {
        if (change.gone.has_value()) deaths_.erase(change.member.worker.incarnation);
      }
    }
  }
  bool agree() const {
    const std::uint64_t count = table_.roster().list().version.count;
    for (const Worker& worker : workers_) {
      if (worker.is_alive && worker.version.count != count) return false;
    }
    return true;
  }

  const sinew::bench::Options& figures_;
  RegistryTable table_;
  std::vector<Worker> workers_;
  std::map<Incarnation, std::size_t> by_incarnation_;
  std::multimap<Time, std::size_t> starts_;
  std::map<Incarnation, Time> deaths_;
  std::mt19937_64 random_{1};
  Time now_{0};
  Time next_tick_{0};
  Time next_death_ = Time::max();
  std::uint64_t last_incarnation_ = 1000;
  std::size_t in_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t heard_ = 0;
  std::uint64_t bytes_ = 0;
  double cpu_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  constexpr int kWorkers[] = {1000, 10000};
  std::vector<std::string> known;
  for (const int workers : kWorkers) {
    for (const char* what : {"join_messages", "join_MiB", "join_cpu_s", "in_per_s", "out_per_s",
                             "worker_per_s", "MiB_per_s", "cpu_percent", "agree_s"}) {
      known.push_back(absl::StrCat("registry_", what, "_", workers));
    }
  }
  const auto figures = sinew::bench::parse_options(argc, argv, known);
  for (const int workers : kWorkers) {
    const bool is_wanted = std::any_of(known.begin(), known.end(), [&](const std::string& figure) {
      return absl::EndsWith(figure, absl::StrCat("_", workers)) && figures.wants(figure);
    });
    if (is_wanted) Job(figures, workers).run();
  }
  return 0;
}
