// What is named and served at once, and calls in the form of members: on peers and references.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "sinew/tests/support/cluster.h"
#include "sinew/torch_names.h"

namespace services {

struct Settings {
  double gamma = 1;
  std::uint64_t seed = 0;
};

double scale(double number, double factor) { return number * factor; }
double mean(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}
template <class T>
T sum(const std::vector<T>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), T());
}
int add(int a, int b) { return a + b; }
std::string add(const std::string& a, const std::string& b) { return a + b; }
void nothing() {}
int never_added() { return 0; }

sinew::testing::Gate gate;
int wait() {
  gate.pass();
  return 1;
}

class Agent {
 public:
  explicit Agent(Settings settings) : settings_(settings) {}

  std::int64_t select_action(std::int64_t observer, double state) {
    return observer + static_cast<std::int64_t>(state * settings_.gamma);
  }
  sinew::Future<std::int64_t> select_action_later(std::int64_t observer) {
    return sinew::make_ready_future(observer + 1);
  }
  void report_reward(double reward) & {
    std::lock_guard<std::mutex> lock(mutex_);
    reward_ += reward;
  }
  double reward() const& noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    return reward_;
  }
  std::uint64_t seed() const { return settings_.seed; }
  int seed(int factor) const { return static_cast<int>(settings_.seed) * factor; }
  int wait() { return services::wait(); }
  static int version() { return 3; }

 private:
  const Settings settings_;
  mutable std::mutex mutex_;  // Such an object can neither travel nor move.
  double reward_ = 0;
};

class Empty {};

}  // namespace services

SINEW_STRUCT(services::Settings, gamma, seed);
SINEW_METHOD(services::scale, services::mean, services::nothing, services::wait,
             services::never_added);
SINEW_METHOD_AS("services::sum<double>", &services::sum<double>);
SINEW_METHOD_AS("services::add(int,int)", sinew::overload<int(int, int)>(&services::add));
SINEW_METHOD_AS(
    "services::add(text,text)",
    sinew::overload<std::string(const std::string&, const std::string&)>(&services::add));
SINEW_SERVICE(services::Agent, (services::Settings), select_action, select_action_later,
              report_reward, reward, wait, version);
SINEW_METHOD_AS("services::Agent::seed(int)",
                sinew::overload<int(int) const>(&services::Agent::seed));
SINEW_SERVICE(services::Empty, ());

// A program's namespaces may be called what some of Sinew's are.
namespace internal {
struct Reading {
  int level = 0;
};
class Meter {
 public:
  Reading read(Reading offset) { return {7 + offset.level}; }
};
}  // namespace internal
SINEW_STRUCT(internal::Reading, level);
SINEW_SERVICE(internal::Meter, (), read);

namespace sinew {
namespace {

using services::Agent;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kAddNumbers = overload<int(int, int)>(&services::add);
constexpr auto kAddTexts =
    overload<std::string(const std::string&, const std::string&)>(&services::add);
constexpr auto kSeedTimes = overload<int(int) const>(&Agent::seed);

MethodTable services_table() {
  return sinew::serve<Agent, services::Empty>()
      .add<&services::scale, &services::mean, &services::nothing, &services::wait>()
      .add<&services::sum<double>, kAddNumbers, kAddTexts, kSeedTimes>()
      .serve<::internal::Meter>();
}

class ServicesTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    services::gate.close();
    start(2, services_table());
  }
  RRef<Agent> agent() { return worker(0).peer("worker1").remote<Agent>(services::Settings{2, 7}); }
};
SINEW_INSTANTIATE_CLUSTER_TEST(ServicesTest);

TEST(ServicesTableTest, HasTheNamesThatWereWritten) {
  EXPECT_THAT(
      serve<Agent>().names(),
      ElementsAre("services::Agent", "services::Agent::report_reward", "services::Agent::reward",
                  "services::Agent::select_action", "services::Agent::select_action_later",
                  "services::Agent::version", "services::Agent::wait"));
  EXPECT_THAT(serve<services::Empty>().names(), ElementsAre("services::Empty"));
  const MethodTable both =
      MethodTable().add<&services::scale, &services::mean>().serve<services::Empty>();
  EXPECT_THAT(both.names(), ElementsAre("services::Empty", "services::mean", "services::scale"));
  EXPECT_EQ(both.find("services::scale")->signature, "(real,real)->real");
  EXPECT_EQ(serve<Agent>().find("services::Agent")->signature, "(tuple<real,integer>)->kept");
}

TEST_P(ServicesTest, PeersCallFunctions) {
  const Peer peer = worker(0).peer("worker1");
  EXPECT_EQ(peer.call<&services::scale>(1.5, 2), 3);
  EXPECT_EQ(peer.async<&services::mean>(std::vector<double>{1, 2}).take(), 1.5);
  EXPECT_EQ(peer.remote<&services::scale>(1.5, 2).to_here(), 3);
  EXPECT_EQ(worker(0).peer(1).remote<&services::scale>(1.5, 2).to_here(), 3);
  peer.call<&services::nothing>();
  EXPECT_EQ(peer.call<&Agent::version>(), 3);
}

TEST_P(ServicesTest, OverloadsAndTemplatesHaveANameEach) {
  const Peer peer = worker(0).peer("worker1");
  EXPECT_EQ(peer.call<&services::sum<double>>(std::vector<double>{1, 2}), 3);
  EXPECT_EQ(peer.call<kAddNumbers>(1, 2), 3);
  EXPECT_EQ(peer.call<kAddTexts>("1", "2"), "12");
  EXPECT_EQ(agent().call<kSeedTimes>(3), 21);
}

TEST_P(ServicesTest, ReferencesCallMemberFunctions) {
  const RRef<Agent> made = agent();
  EXPECT_EQ(made.call<&Agent::select_action>(1, 20.0), 41);
  EXPECT_EQ(made.async<&Agent::select_action_later>(1).take(), 2);
  made.call<&Agent::report_reward>(0.5);
  EXPECT_EQ(made.remote<&Agent::reward>().to_here(), 0.5);
  EXPECT_EQ(worker(0).peer(1).remote<services::Empty>().owner_name(), "worker1");
  EXPECT_EQ(worker(0)
                .peer(1)
                .remote<::internal::Meter>()
                .call<&::internal::Meter::read>(::internal::Reading{1})
                .level,
            8);
}

TEST_P(ServicesTest, TorchsNamesAreTheSameCalls) {
  const Peer peer = worker(0).peer(1);
  EXPECT_EQ(rpc_sync<&services::scale>(peer, 1.5, 2), 3);
  EXPECT_EQ(rpc_async<&services::scale>(peer.within(30s), 1.5, 2).take(), 3);
  EXPECT_EQ(remote<&services::scale>(peer, 1.5, 2).to_here(), 3);
  const RRef<Agent> made = remote<Agent>(peer, services::Settings{2, 7});
  EXPECT_EQ(rpc_sync<&Agent::select_action>(made, 1, 20.0), 41);
  EXPECT_EQ(rpc_async<&Agent::select_action_later>(made, 1).take(), 2);
  EXPECT_EQ(remote<&Agent::reward>(made).to_here(), 0);
}

TEST_P(ServicesTest, OptionsAreThoseOfTheResult) {
  const RRef<Agent> made = agent();
  const RRef<Agent> hurried = made.within(20ms);
  EXPECT_EQ(hurried.options().timeout, 20ms);
  EXPECT_FALSE(made.options().timeout.has_value());
  EXPECT_EQ(error_of([&] { hurried.call<&Agent::wait>(); }).code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error_of([&] { hurried.async<&Agent::wait>().wait(); }).code(),
            ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error_of([&] { hurried.remote<&Agent::wait>().to_here(); }).code(),
            ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error_of([&] { hurried.peer().call<&services::wait>(); }).code(),
            ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error_of([&] { made.within(0s).call<&Agent::reward>(); }).code(),
            ErrorCode::kInvalidArgument);

  // The last word counts, the others stay.
  const CancellationSource source;
  CallOptions options;
  options.timeout = 1ms;
  options.cancellation = source.token();
  const Future<int> waiting = made.with(options).within(30s).async<&Agent::wait>();
  const Future<int> at_peer = worker(0).peer(1).with(options).within(30s).async<&services::wait>();
  ASSERT_TRUE(services::gate.wait_for_arrivals(2));
  source.cancel();
  EXPECT_EQ(error_of([&] { waiting.wait(); }).code(), ErrorCode::kCancelled);
  EXPECT_EQ(error_of([&] { at_peer.wait(); }).code(), ErrorCode::kCancelled);
  services::gate.open();
  EXPECT_EQ(made.with({}).call<&Agent::wait>(), 1);
}

TEST_P(ServicesTest, ReferencesWithOptionsHoldWhatTheyReferTo) {
  Future<double> reward;
  {
    const RRef<Agent> hurried = agent().within(30s);  // The one without options is gone here.
    hurried.call<&Agent::report_reward>(1.0);
    reward = hurried.async<&Agent::reward>();
  }
  EXPECT_EQ(reward.take(), 1);
}

}  // namespace
}  // namespace sinew
