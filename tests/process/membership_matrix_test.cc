// What becomes of a job when a process of it is killed, stopped, started again or leaves: over each
// way to meet, in each kind of world, in each place. What is expected stands in kRows.

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "sinew/testing/eventually.h"
#ifdef SINEW_WITH_ETCD
#include "sinew/tests/etcd/etcd_servers.h"
#endif
#include "sinew/tests/process/membership_matrix.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::testing::ChildProcess;
using testmatrix::Event;
using testmatrix::kRows;
using testmatrix::Meet;
using testmatrix::Row;
using testmatrix::Victim;
using testmatrix::World;

namespace {

std::string name_of(Victim victim) {
  if (victim == Victim::kRankZero) return "a";
  return victim == Victim::kHighest ? "d" : "c";
}
std::string name_of(Event event) {
  if (event == Event::kKill) return "Kill";
  if (event == Event::kStop) return "Stop";
  return event == Event::kRestart ? "Restart" : "Leave";
}
int rank_of(const std::string& name) { return name[0] - 'a'; }

bool is_tried(const std::string& code) { return code != "-"; }

/// "OK", or the code of an error.
std::string code_of(const std::string& answer) {
  const std::vector<std::string> words = absl::StrSplit(answer, ' ');
  return words[0] == "error" && words.size() > 1 ? words[1] : "OK";
}

/// What rows have: without incarnations.
std::string list_of(const std::string& view) {
  return std::regex_replace(view, std::regex("#[0-9a-f]+"), "");
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names = absl::StrSplit(list.substr(0, list.find(',')), ' ');
  for (std::string& name : names) name.resize(1);
  return names;
}

/// For what takes a moment. Two dozen processes that start at once on a busy machine take longer
/// than most tests have to wait.
constexpr std::chrono::milliseconds kPatience = std::chrono::minutes(3);

/// Each condition asks processes, and there are many: they are not to keep the cores busy.
template <class Condition>
void wait_until(const Condition& condition) {
  sinew::testing::eventually([&] {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return false;
  });
}

/// One row over one way to meet. For one thread; throws what is not as the row says.
class Cell {
 public:
  /// `at_etcd`: the URL of a prefix that nobody else has.
  Cell(const Row& row, Meet meet, std::string at_etcd)
      : row_(row), meet_(meet), victim_(name_of(row.victim)), at_etcd_(std::move(at_etcd)) {
    for (const char* name : {"a", "b", "c", "d"}) {
      if (name != victim_) survivors_.emplace_back(name);
    }
    owner_ = survivors_.front();
    user_ = survivors_.back();
  }

  void run() {
    start();
    begin();
    happen();
    check_survivors();
    join_newcomer();
    if (row_.event == Event::kStop) children_.at(victim_)->signal(SIGCONT);
    if (is_tried(row_.state)) check_victim();
    if (row_.event == Event::kStop) come_back();
    check_end();
  }

  /// What the workers have logged.
  std::string log() const {
    std::ifstream file(folder_.file("log"));
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  using Child = std::unique_ptr<ChildProcess>;

  // ---- Workers.

  Child spawn() const {
    // They all write there, a line at a time.
    return std::make_unique<ChildProcess>(std::vector<std::string>{
        "/bin/sh", "-c", "exec \"$0\" 2>> \"$1\"", SINEW_TEST_WORKER, folder_.file("log")});
  }
  bool is_at_address() const { return meet_ == Meet::kTcp; }
  /// Whether its rank is given, and not what the coordinator gives.
  bool has_rank(const std::string& name) const {
    return row_.world == World::kFixed || (name == "a" && is_at_address());
  }
  /// Elsewhere the lease is one that no other worker exceeds for want of a core.
  std::chrono::milliseconds lease() const {
    if (row_.event == Event::kStop) return std::chrono::seconds(5);
    // Where nobody can tell that a process has ended it is missed when its lease is over.
    return std::chrono::seconds(20);
  }
  std::string place() const {
    switch (meet_) {
      case Meet::kTcp:
        return absl::StrCat("tcp://127.0.0.1:", port_);
      case Meet::kFile:
        return absl::StrCat("file://", folder_.file("meet"));
      case Meet::kRegistrar:
        return absl::StrCat("tcp://127.0.0.1:", port_, " founds=never");
      case Meet::kEtcd:
        break;
    }
    return at_etcd_;
  }
  void start_registrar() {
    registrar_ = std::make_unique<ChildProcess>(
        std::vector<std::string>{SINEW_REGISTRAR, "--bind", absl::StrCat("127.0.0.1:", port_),
                                 "--world-size", row_.world == World::kFixed ? "4" : "0", "--lease",
                                 absl::StrCat(std::chrono::duration<double>(lease()).count())});
    registrar_->receive(kPatience);
  }
  void send_start(ChildProcess& child, const std::string& name, const std::string& more) const {
    child.send(absl::StrCat(
        "start name=", name, " init=", place(), row_.world == World::kFixed ? " world=4" : "",
        " lease_ms=", lease().count(), " beat_ms=200 join_ms=", kPatience.count(), " ", more));
  }
  void send_start_as_before(const std::string& name) {
    send_start(*children_.at(name), name,
               has_rank(name) ? absl::StrCat("rank=", rank_of(name)) : "");
  }

  void start() {
    if (meet_ == Meet::kRegistrar) start_registrar();
    for (const char* name : {"a", "b", "c", "d"}) children_[name] = spawn();
    // A fixed world is complete with its last one.
    for (const char* name : {"a", "b", "d", "c"}) {
      if (name == std::string("d")) {
        send_start(*children_[name], name, "rank=3");
      } else if (meet_ == Meet::kRegistrar && name == std::string("a")) {
        // Nobody founds the job, so nobody has rank 0 unless it asks for it.
        send_start(*children_[name], name, "rank=0");
      } else {
        send_start_as_before(name);
      }
      if (row_.world == World::kOpen) expect_started(name);
    }
    if (row_.world == World::kFixed) {
      for (const auto& [name, child] : children_) expect_started(name);
    }
    expect_list("a0 b1 c2 d3, a");
  }
  void expect_started(const std::string& name) {
    expect(absl::StrCat("start of ", name), "OK", receive(*children_.at(name), "start"));
  }

  // ---- What happens.

  void begin() {
    ask(victim_, absl::StrCat("hold ", owner_, " it"));
    ask(user_, absl::StrCat("hold ", victim_, " it"));
    for (const std::string& owner : {owner_, victim_}) {
      expect_answer(owner, "counter rref.owned", "ok 1");
    }
    const auto begin_call = [this](const std::string& caller, const std::string& callee) {
      ask(caller, absl::StrCat("begin call stall ", callee));
      expect_answer(callee, "stalled", "ok 1");
    };
    if (is_tried(row_.call_begun)) begin_call(user_, victim_);
    if (is_tried(row_.own_call_begun)) begin_call(victim_, owner_);
    for (const std::string& name : survivors_) ask(name, "begin barrier barrier 50000 a b c d");
  }

  void happen() {
    Child& child = children_.at(victim_);
    if (row_.event == Event::kKill) {
      child->signal(SIGKILL);
      children_.erase(victim_);
    } else if (row_.event == Event::kStop) {
      child->signal(SIGSTOP);
    } else if (row_.event == Event::kRestart) {
      // At once: the others are not given the time that a process needs to load its libraries,
      // which it has done when it answers.
      Child again = spawn();
      again->ask("state");
      child->signal(SIGKILL);
      child = std::move(again);
      send_start_as_before(victim_);
    } else {
      ask(victim_, row_.world == World::kFixed ? "shutdown hard 1000" : "shutdown graceful 30000");
    }
  }

  void check_survivors() {
    for (const std::string& name : survivors_) {
      expect(absl::StrCat("barrier that ", name, " had begun"), row_.barrier_begun,
             answer_of(name, "end barrier"));
    }
    if (is_tried(row_.call_begun)) {
      expect("call that had begun", row_.call_begun, answer_of(user_, "end call"));
    }
    if (row_.event == Event::kRestart) expect_started(victim_);
    expect_list(row_.list.at(meet_));
    for (const std::string& name : survivors_) {
      expect_code(name, absl::StrCat("add ", victim_), row_.call);
    }
    expect_code(user_, "use it", row_.use);
    expect_barrier(names_in(row_.list.at(meet_)), row_.barrier);
    // Nobody keeps anything for the one that is gone.
    expect_answer(owner_, "counter rref.owned", "ok 0");
    expect_answer(owner_, "counter rref.forks", "ok 0");
    ask(user_, "drop it");
    expect_answer(user_, "counter rref.users", "ok 0");
    ask(owner_, "release");
  }

  void join_newcomer() {
    const std::string expected = row_.newcomer.at(meet_);
    if (!is_tried(expected)) return;
    Child child = spawn();
    // Who finds nobody looks on until then.
    std::string more = expected == "OK" ? "" : "join_ms=3000";
    if (row_.world == World::kFixed) absl::StrAppend(&more, " rank=", rank_of(victim_));
    send_start(*child, "e", more);
    expect("start of e", expected, receive(*child, "start of e"));
    if (expected == "OK") children_["e"] = std::move(child);
  }

  void check_victim() {
    if (is_tried(row_.own_call_begun)) {
      expect("call of the victim that had begun", row_.own_call_begun,
             answer_of(victim_, "end call"));
    }
    expect_answer(victim_, "state", absl::StrCat("ok ", row_.state));
    for (const std::string& what : {absl::StrCat("add ", owner_), absl::StrCat("add ", user_),
                                    std::string("use it"), std::string("barrier 1000 a b c d")}) {
      expect(absl::StrCat("the victim's ", what), row_.own_call, answer_of(victim_, what));
    }
    // Who has left keeps what it owns until the Worker goes.
    if (row_.event == Event::kLeave) return (void)children_.erase(victim_);
    ask(victim_, "drop it");
    expect_answer(victim_, "counter rref.owned", "ok 0");
    expect_answer(victim_, "counter rref.users", "ok 0");
  }

  void come_back() {
    ask(victim_, "shutdown hard 1000");
    expect_answer(victim_, "state", "ok left, does not run");
    send_start_as_before(victim_);
    expect_started(victim_);
  }

  void check_end() {
    const std::string list = row_.end.at(meet_);
    expect_list(list);
    const std::vector<std::string> names = names_in(list);
    for (const std::string& name : names) {
      // It may just have been asked by one that was stopped.
      expect_answer(name, "state", "ok member, runs");
      for (const std::string& other : names) {
        expect_answer(name, absl::StrCat("add ", other), "ok 3");
      }
    }
    expect_barrier(names, "OK");
    for (const std::string& name : names) {
      for (const char* counter :
           {"rref.owned", "rref.forks", "rref.users", "rref.pending_users", "rref.pending_children",
            "rpc.client_active_calls", "rpc.server_active_calls"}) {
        expect_answer(name, absl::StrCat("counter ", counter), "ok 0");
      }
    }
    for (const std::string& name : names) children_.at(name)->send("shutdown graceful 30000");
    for (const std::string& name : names) {
      expect(absl::StrCat("shutdown of ", name), "OK", receive(*children_.at(name), "shutdown"));
    }
  }

  // ---- Expectations.

  /// Its next answer, to that.
  static std::string receive(ChildProcess& child, const std::string& what) {
    try {
      return child.receive(kPatience + std::chrono::seconds(30));
    } catch (const std::exception& error) {
      throw std::runtime_error(absl::StrCat(what, ": ", error.what()));
    }
  }
  std::string answer_of(const std::string& name, const std::string& command) {
    children_.at(name)->send(command);
    return receive(*children_.at(name), absl::StrCat(command, " at ", name));
  }
  static void expect(const std::string& what, const std::string& code, const std::string& answer) {
    if (code_of(answer) == code) return;
    throw std::runtime_error(absl::StrCat(what, ": '", answer, "' instead of ", code));
  }
  void ask(const std::string& name, const std::string& command) {
    expect(absl::StrCat(command, " at ", name), "OK", answer_of(name, command));
  }
  void expect_answer(const std::string& name, const std::string& question,
                     const std::string& expected) {
    std::string answer;
    wait_until([&] { return (answer = answer_of(name, question)) == expected; });
    if (answer == expected) return;
    throw std::runtime_error(
        absl::StrCat(question, " at ", name, ": '", answer, "' instead of '", expected, "'"));
  }
  void expect_code(const std::string& name, const std::string& command, const std::string& code) {
    std::string answer;
    wait_until([&] { return code_of(answer = answer_of(name, command)) == code; });
    expect(absl::StrCat(command, " at ", name), code, answer);
  }
  /// All whom it names have this list, with the same incarnations.
  void expect_list(const std::string& list) {
    const std::vector<std::string> names = names_in(list);
    std::vector<std::string> views(names.size());
    const auto are_right = [&] {
      for (std::size_t i = 0; i < names.size(); ++i) {
        views[i] = answer_of(names[i], "view").substr(3);
      }
      return list_of(views[0]) == list &&
             std::all_of(views.begin(), views.end(),
                         [&](const std::string& view) { return view == views[0]; });
    };
    wait_until(are_right);
    if (are_right()) return;
    throw std::runtime_error(absl::StrCat("lists of ", absl::StrJoin(names, " "), ": '",
                                          absl::StrJoin(views, "', '"), "' instead of '", list,
                                          "'"));
  }
  void expect_barrier(const std::vector<std::string>& names, const std::string& code) {
    // A new registrar may have the list before all know that it is there.
    for (const std::string& name : names) expect_answer(name, "state", "ok member, runs");
    // A busy etcd may not answer for a moment.
    const char* const barrier = meet_ == Meet::kEtcd ? "meet 30000" : "barrier 30000";
    for (const std::string& name : names) children_.at(name)->send(barrier);
    for (const std::string& name : names) {
      const std::string answer = receive(*children_.at(name), "barrier");
      expect(absl::StrCat("barrier at ", name), code, answer);
    }
  }

  const Row& row_;
  const Meet meet_;
  const std::string victim_;
  const std::string at_etcd_;
  std::vector<std::string> survivors_;
  // Of the survivors: one that owns what the victim holds, and one that holds what the victim owns.
  std::string owner_;
  std::string user_;
  const int port_ = sinew::testing::free_port();
  const sinew::testing::TemporaryFolder folder_;
  Child registrar_;
  std::map<std::string, Child> children_;
};

/// What is wrong in that cell; "" if nothing is.
std::string failure_of(const Row& row, Meet meet, const std::string& at_etcd) {
  Cell cell(row, meet, at_etcd);
  try {
    cell.run();
    return "";
  } catch (const std::exception& error) {
    constexpr const char* kWhere[] = {
        " over tcp: ", " over a file: ", " by a registrar: ", " at etcd: "};
    const char* const where = kWhere[static_cast<std::size_t>(meet)];
    return absl::StrCat(name_of(row.victim), where, error.what(), "\n", cell.log());
  }
}

class MembershipMatrix : public ::testing::TestWithParam<std::tuple<World, Event>> {};

// Cells wait most of the time, so that a few run at once.
TEST_P(MembershipMatrix, IsAsItsRowsSay) {
  const auto [world, event] = GetParam();
  std::vector<Meet> meets = {Meet::kTcp, Meet::kFile, Meet::kRegistrar};
#ifdef SINEW_WITH_ETCD
  std::optional<sinew::testing::EtcdServers> etcd;
  if (sinew::testing::EtcdServers::is_installed()) {
    etcd.emplace(1);
    meets.push_back(Meet::kEtcd);
  }
#endif
  std::vector<std::string> failures;
  std::vector<std::thread> threads;
  failures.reserve(std::size(kRows) * meets.size());
  for (const Row& row : kRows) {
    if (row.world != world || row.event != event) continue;
    for (const Meet meet : meets) {
      // The list stands still while its registrar is away: registrar_test has that.
      const bool is_away = row.victim == Victim::kRankZero &&
                           ((meet == Meet::kTcp && row.event != Event::kRestart) ||
                            (meet == Meet::kFile && row.event == Event::kStop));
      if (is_away) continue;
      std::string& failure = failures.emplace_back();
      std::string at_etcd;
#ifdef SINEW_WITH_ETCD
      if (etcd) at_etcd = absl::StrCat("etcd://", etcd->endpoint(0), "/", failures.size());
#endif
      threads.emplace_back(
          [&row, meet, at_etcd, &failure] { failure = failure_of(row, meet, at_etcd); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(failures.size(), 3 * meets.size() - 2);
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

INSTANTIATE_TEST_SUITE_P(Of, MembershipMatrix,
                         ::testing::Combine(::testing::Values(World::kFixed, World::kOpen),
                                            ::testing::Values(Event::kKill, Event::kStop,
                                                              Event::kRestart, Event::kLeave)),
                         [](const auto& each) {
                           return absl::StrCat(
                               std::get<0>(each.param) == World::kFixed ? "Fixed" : "Open",
                               name_of(std::get<1>(each.param)));
                         });

}  // namespace
