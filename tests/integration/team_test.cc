// Teams: objects at several members, which come and go.

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "sinew/tests/support/cluster.h"

namespace teamed {

sinew::testing::Gate gate;
std::atomic<int> failures{0};
std::atomic<int> asked{0};

class Player {
 public:
  explicit Player(std::string name) : name_(std::move(name)) {
    if (failures > 0 && failures-- > 0) throw std::runtime_error("no board to play on");
  }
  std::string play(int round) { return name_ + ":" + std::to_string(round); }
  std::string wait() {
    gate.pass();
    return name_;
  }
  int add(int number) { return number + 1; }
  int ask() { return ++asked; }
  std::string greet(const std::string& whom) { return "hello " + whom; }
  void shout() {}

 private:
  const std::string name_;
};

}  // namespace teamed

SINEW_SERVICE(teamed::Player, (std::string), play, wait, add, ask, greet, shout);
SINEW_IDEMPOTENT(teamed::Player::ask);

namespace sinew {
namespace {

using namespace std::chrono_literals;
using teamed::Player;
using ::testing::ElementsAre;
using testing::error_of;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string line_of(const TeamEvent& event) {
  std::ostringstream line;
  line << event.worker.name << " " << event.kind;
  return line.str();
}

class Teams : public ::testing::Test {
 protected:
  void SetUp() override {
    teamed::gate.close();
    teamed::failures = teamed::asked = 0;
  }
  void TearDown() override { teamed::gate.open(); }

  static testing::ClusterOptions open_job(std::vector<std::string> names) {
    testing::ClusterOptions options;
    options.names = std::move(names);
    options.methods = serve<Player>();
    options.world = testing::ClusterWorld::kOpen;
    return options;
  }
  /// A pattern, with every event kept.
  TeamOptions watched(const std::string& members) {
    TeamOptions options(members);
    options.on_event = [this](const TeamEvent& event) {
      const std::lock_guard<std::mutex> lock(mutex_);
      lines_.push_back(line_of(event));
    };
    options.making.first_pause = 1ms;
    return options;
  }
  std::vector<std::string> lines() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(Teams, CallsOfAllComeByMember) {
  testing::Cluster job(open_job({"lead", "player1", "player2", "other"}));
  const Team<Player> team = job.worker("lead").team<Player>(
      "player*", [](const Peer& peer) { return peer.remote<Player>("at " + peer.name()); });
  team.wait_for(2);
  ASSERT_EQ(team.size(), 2U);
  EXPECT_THAT(team.call_all<&Player::play>(7).values(),
              ElementsAre("at player1:7", "at player2:7"));
  std::vector<std::string> answers;
  for (const auto& answer : team.call_each<&Player::add>(
           [](const TeamMember<Player>& member) { return std::make_tuple(member.worker.rank); })) {
    answers.push_back(answer.member.name + "=" + std::to_string(answer.value()));
  }
  EXPECT_THAT(answers, UnorderedElementsAre("player1=2", "player2=3"));
  team.call_all<&Player::shout>().values();
  job.shutdown();
}

TEST_F(Teams, AnswersComeInTheOrderOfTheirEnds) {
  testing::Cluster job(open_job({"lead", "player1", "player2"}));
  const Team<Player> team = job.worker("lead").team<Player>("player*", std::string("p"));
  team.wait_for(2);
  job.faults().fail(testing::calls<&Player::wait>().at("player1"));
  auto calls = team.call_all<&Player::wait>();
  ASSERT_TRUE(teamed::gate.wait_for_arrivals(1));
  const auto first = calls.next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->member.name, "player1");
  EXPECT_EQ(error_of([&] { first->value(); }).code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(calls.wait_for(1, 1ms).empty());
  teamed::gate.open();
  // One good answer is enough; the other one was an error.
  const auto rest = calls.wait_for(2, 60s);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest.front().value(), "p");
  EXPECT_FALSE(calls.next().has_value());
}

TEST_F(Teams, WhoIsLostLeavesAndWhoComesBackGetsAnObject) {
  testing::Cluster job(open_job({"lead", "player1", "player2"}));
  {
    const Team<Player> team = job.worker("lead").team<Player>(watched("player*"), std::string("p"));
    team.wait_for(2);
    job.kill("player2");
    EXPECT_TRUE(eventually([&] { return team.size() == 1; }));
    EXPECT_THAT(team.call_all<&Player::play>(1).values(), ElementsAre("p:1"));
    job.start("player2");
    team.wait_for(2, 60s);
    EXPECT_THAT(team.call_all<&Player::play>(2).values(), ElementsAre("p:2", "p:2"));
    EXPECT_TRUE(eventually([&] { return lines().size() == 7; }));
    std::vector<std::string> of_second;
    for (const std::string& line : lines()) {
      if (line.find("player2") == 0) of_second.push_back(line);
    }
    EXPECT_THAT(of_second, ElementsAre("player2 joined", "player2 ready", "player2 lost",
                                       "player2 joined", "player2 ready"));
  }
}

TEST_F(Teams, AnObjectThatCannotBeMadeIsTriedAgainAndGivenUp) {
  testing::Cluster job(open_job({"lead", "player1"}));
  const Worker& lead = job.worker("lead");
  teamed::failures = 3;
  const Team<Player> patient = lead.team<Player>(watched("player*"), std::string("p"));
  patient.wait_for(1);
  EXPECT_EQ(teamed::failures, 0);
  teamed::failures = 1000;
  TeamOptions options = watched("player*");
  options.making.max_attempts = 2;
  const Team<Player> team = lead.team<Player>(options, std::string("p"));
  EXPECT_TRUE(eventually([&] { return lines().back() == "player1 gave up"; }));
  const RpcError late = error_of([&] { team.wait_for(1, 1ms); });
  EXPECT_EQ(late.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(late.message(), HasSubstr("'player1' its object could not be made, and is not tried "
                                        "again"));
  EXPECT_THAT(late.message(), HasSubstr("no board to play on"));
  const RpcError nobody = error_of([&] { team.call_any<&Player::ask>().wait(); });
  EXPECT_EQ(nobody.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(nobody.message(), HasSubstr("team 'player*' has no member that is ready"));
  teamed::failures = 0;
}

TEST_F(Teams, AnyoneIsTheLeastBusyAndAnotherOneWhereThatIsSafe) {
  testing::Cluster job(open_job({"lead", "player1", "player2"}));
  const Team<Player> team = job.worker("lead").team<Player>("player*", "p");
  team.wait_for(2);
  const Future<std::string> first = team.call_any<&Player::wait>();
  const Future<std::string> second = team.call_any<&Player::wait>();
  ASSERT_TRUE(teamed::gate.wait_for_arrivals(2));
  teamed::gate.open();
  EXPECT_EQ(first.wait() + second.wait(), "pp");
  // Each has had one: they were two. Who is lost is no answer to a call that may run twice.
  job.faults().fail(testing::calls<&Player::ask>().at("player1"));
  for (int i = 1; i <= 6; ++i) EXPECT_EQ(team.call_any<&Player::ask>().wait(), i);
  EXPECT_EQ(team.call_any<&Player::greet>("all").wait(), "hello all");
  EXPECT_THAT(team.call_all<&Player::greet>("all").values(), ElementsAre("hello all", "hello all"));
}

TEST_F(Teams, OfPublishedObjects) {
  testing::Cluster job(open_job({"lead", "player1", "player2"}));
  const Team<Player> team = job.worker("lead").team<Player>("player*/me");
  job.worker("player1").publish("me", std::make_shared<Player>("one"));
  team.wait_for(1);
  job.worker("player2").publish("me", std::make_shared<Player>("two"));
  team.wait_for(2);
  EXPECT_THAT(team.call_all<&Player::play>(1).values(), ElementsAre("one:1", "two:1"));
  EXPECT_EQ(error_of([&] { job.worker("lead").team<Player>("a/b", std::string("x")); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { job.worker("lead").team<Player>("", std::string("x")); }).code(),
            ErrorCode::kInvalidArgument);
}

TEST_F(Teams, NoneSaysSo) {
  const RpcError none = error_of([] { Team<Player>().wait_for(1); });
  EXPECT_EQ(none.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(none.message(), HasSubstr("Worker::team() makes one"));
}

TEST_F(Teams, WithoutNewcomersItStaysAsItWas) {
  testing::Cluster job(open_job({"lead", "player1"}));
  TeamOptions options = watched("player*");
  options.takes_newcomers = false;
  const Team<Player> team = job.worker("lead").team<Player>(options, std::string("p"));
  team.wait_for(1);
  job.kill("player1");
  EXPECT_TRUE(eventually([&] { return team.size() == 0; }));
  job.start("player1");
  EXPECT_THAT(lines(), ElementsAre("player1 joined", "player1 ready", "player1 lost"));
}

}  // namespace
}  // namespace sinew
