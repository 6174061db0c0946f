#include "sinew/rpc/membership/membership.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/member_codec.h"
#include "sinew/rpc/membership/registry.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {
namespace {

/// Says what the test says.
class ToldRegistry final : public Registry {
 public:
  ToldRegistry(View view, Listener listener) : view_(std::move(view)), listener_(listener) {}

  void join() const { listener_.on_state(MembershipState::kMember, absl::OkStatus()); }
  void tell(const registry::MemberNews& news) const { listener_.on_member(news); }

  View view() const override { return view_; }
  void leave() override {}
  void give_up(Time) override {}
  void when_sure(Time, std::function<void()> then) override { then(); }
  void report_lost(Incarnation, std::string, bool) override {}
  void gather(const std::string&, std::vector<std::string>, std::string, Time,
              OnGathered) override {}
  void end_gathers_with(const std::string&, absl::Status) override {}
  void end_gathers(absl::Status, std::function<void()> then) override { then(); }

 private:
  const View view_;
  const Listener listener_;
};

registry::Record record_of(const WorkerInfo& worker) {
  proto::Member details;
  encode(Member{worker, "127.0.0.1:1", 0, {}, false}, details);
  return {worker, details.SerializeAsString()};
}

Executor::Options one_thread() {
  Executor::Options options;
  options.num_threads = 1;
  options.min_threads = 1;
  return options;
}

class MembershipTest : public ::testing::Test {
 protected:
  MembershipTest() {
    MembershipOptions options;
    options.self = {self_, "127.0.0.1:1", 0, {}, false};
    options.on_change = [](const auto&, const auto&) {};
    options.on_removed = [](const absl::Status&) {};
    options.on_warning = [](const std::string& warning) { ADD_FAILURE() << warning; };
    membership_ = std::make_shared<Membership>(
        std::move(options),
        [this](const registry::Record& self, Registry::Listener listener) {
          Registry::View view;
          view.state = MembershipState::kMember;
          view.members = {self, record_of(old_), record_of(other_)};
          registry_ = std::make_shared<ToldRegistry>(std::move(view), std::move(listener));
          return std::shared_ptr<Registry>(registry_);
        },
        directory_, scheduler_);
    const Future<void> joined = membership_->join_async();
    registry_->join();
    joined.wait();
  }
  ~MembershipTest() override {
    membership_->close();
    executor_.shutdown();
    timers_.stop();
  }
  /// Once all that was told has been taken in.
  absl::StatusOr<Member> found(const std::string& name) {
    const Promise<void> done;
    executor_.runner()->post([done] { done.set_value(); });
    done.future().wait();
    return directory_.find(name);
  }

  const WorkerInfo self_{"a", 0, {1}};
  // Its incarnation is the greater one: numbers are no order.
  const WorkerInfo old_{"b", 1, {90}};
  const WorkerInfo other_{"c", 2, {91}};
  Directory directory_;
  TimerQueue timers_;
  Executor executor_{one_thread()};
  Scheduler scheduler_{executor_, timers_, Clock::system()};
  std::shared_ptr<ToldRegistry> registry_;
  std::shared_ptr<Membership> membership_;
};

// While the former one may still come back to a registrar that was started again.
TEST_F(MembershipTest, WhoHasANameNowHasItBeforeWhoIsAwaited) {
  const WorkerInfo next{"b", 3, {10}};
  registry_->tell({record_of(next), std::nullopt, ""});
  ASSERT_TRUE(found("b").ok());
  EXPECT_EQ(found("b")->worker.incarnation, next.incarnation);
  registry_->tell({record_of(old_), Gone::kNotReturned, ""});
  EXPECT_EQ(found("b")->worker.incarnation, next.incarnation);
}

TEST_F(MembershipTest, WhoHasARankNowHasItBeforeWhoIsAwaited) {
  const WorkerInfo next{"d", 2, {11}};
  registry_->tell({record_of(next), std::nullopt, ""});
  EXPECT_EQ(found("d")->worker.rank, 2);
  EXPECT_EQ(directory_.find(2)->worker.name, "d");
}

}  // namespace
}  // namespace sinew::internal
