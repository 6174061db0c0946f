#include "sinew/rpc/link/link_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/link/link_codec.h"
#include "sinew/rpc/transport/inproc/inproc_transport.h"

namespace sinew::internal {
namespace {

/// Nothing that happens on a link matters to it.
class Nobody final : public LinkUser {
 public:
  void on_frames(std::vector<Inbound>) override {}
  void on_frames_ended(absl::Span<const LinkOutputs::Ended>) override {}
  void on_beat(std::uint64_t) override {}
  void on_room() override {}
  void on_up() override {}
  void on_unreached() override {}
  void on_unreachable(const absl::Status&) override {}
  void on_suspected(bool) override {}
  void on_end(Gone, const absl::Status&) override {}
};

/// The links of a worker to which only strangers come, and whose connections nobody brings up.
class LinkTableTest : public ::testing::Test {
 protected:
  LinkTableTest()
      : executor_(Executor::Options()),
        transport_(make_inproc_transport(std::make_shared<InprocNetwork>())),
        table_(options(), executor_, timers_) {
    EXPECT_TRUE(transport_->start(&table_, nullptr).ok());
    table_.start(*transport_);
  }
  ~LinkTableTest() override {
    table_.close(absl::CancelledError("the test is over"));
    transport_->shutdown();
    executor_.shutdown();
  }

  /// What a stranger's first hello is answered with.
  absl::StatusOr<Acceptor::Accepted> offer(std::uint64_t number,
                                           const std::function<void(proto::Hello&)>& change = {}) {
    std::shared_ptr<const WorkerKey>& key = keys_[number];
    if (key == nullptr) key = WorkerKey::draw();
    const WorkerInfo stranger{absl::StrCat("stranger", number), -1, key->incarnation()};
    const SelfDescription description{stranger, "job", "inproc://nowhere", 0, key, ""};
    proto::Hello hello;
    write_self(description, hello);
    write_identity(kSelf, *hello.mutable_expected());
    LinkHello link;
    link.connection = {stranger.incarnation, 1};
    write_link_hello(link, hello);
    if (change) change(hello);
    return table_.on_connection(seal_hello(hello, description), AuthenticatedPeer());
  }
  static proto::Refusal refusal_of(const absl::StatusOr<Acceptor::Accepted>& answer) {
    const auto refused = read_refusal(answer.status());
    return refused.ok() ? refused->refusal() : proto::ACCEPTED;
  }

  const std::shared_ptr<const WorkerKey> key_ = WorkerKey::draw();
  const WorkerInfo kSelf{"self", 0, key_->incarnation()};
  std::map<std::uint64_t, std::shared_ptr<const WorkerKey>> keys_;
  // How often it is said of a stranger that it is not lost.
  mutable int asked_ = 0;
  int known_for_ = std::numeric_limits<int>::max();
  Executor executor_;
  TimerQueue timers_;
  std::unique_ptr<Transport> transport_;
  LinkTable table_;

 private:
  LinkTableOptions options() const {
    LinkTableOptions options;
    options.self.worker = kSelf;
    options.self.key = key_;
    options.self.job = "job";
    options.make_user = [](const std::shared_ptr<LinkRunner>&) {
      return std::make_shared<Nobody>();
    };
    options.known_as = [this](const WorkerInfo&) {
      return ++asked_ > known_for_ ? Refusal::kLostHere : Refusal::kNone;
    };
    options.is_member = [](const WorkerInfo&) { return false; };
    return options;
  }
};

TEST_F(LinkTableTest, StrangersWhoAreAtItHaveABoundedNumberOfPlaces) {
  for (std::uint64_t i = 0; i < LinkTable::kMaxGuests; ++i) {
    ASSERT_TRUE(offer(100 + i).ok());
  }
  EXPECT_EQ(refusal_of(offer(99)), proto::NOT_LISTENING_YET);
  EXPECT_EQ(table_.all().size(), LinkTable::kMaxGuests);
}

TEST_F(LinkTableTest, StrangersWhoHaveGoneLeaveTheirPlacesToOthers) {
  for (std::uint64_t i = 0; i < LinkTable::kMaxGuests; ++i) {
    // Refused, since attempts begin with 1.
    const auto refused = offer(100 + i, [](proto::Hello& hello) { hello.set_attempt(0); });
    ASSERT_EQ(refusal_of(refused), proto::DUPLICATE);
  }
  EXPECT_TRUE(offer(99).ok());
  // Whoever comes back is not held for lost.
  EXPECT_TRUE(offer(100).ok());
  for (std::uint64_t i = 0; i < 10; ++i) {
    for (std::uint64_t j = 0; j < LinkTable::kMaxGuests; ++j) {
      offer(10000 * (i + 1) + j, [](proto::Hello& hello) { hello.set_attempt(0); })
          .status()
          .IgnoreError();
    }
  }
  EXPECT_LE(table_.all().size(), LinkTable::kMaxGuests);
  EXPECT_TRUE(offer(98).ok());
}

// Whoever takes a peer for lost notes that, and looks for its link: in between one may be made.
TEST_F(LinkTableTest, WhoIsLostBeforeItsLinkIsMadeHasNone) {
  known_for_ = 1;
  EXPECT_EQ(refusal_of(offer(100)), proto::LOST_HERE);
  EXPECT_EQ(asked_, 2);
  EXPECT_TRUE(table_.all().empty());
}

TEST_F(LinkTableTest, WhoeverAsksIsToldWhoAnswers) {
  const auto key = WorkerKey::draw();
  const SelfDescription stranger{{"stranger", -1, key->incarnation()}, "job", "", 0, key, ""};
  proto::Hello hello;
  write_self(stranger, hello);
  const auto answer = table_.on_connection(seal_hello(hello, stranger), AuthenticatedPeer());
  const auto said = read_refusal(answer.status());
  ASSERT_TRUE(said.ok()) << answer.status();
  EXPECT_EQ(said->refusal(), proto::WHO_ANSWERS);
  EXPECT_EQ(said->worker().name(), "self");
}

}  // namespace
}  // namespace sinew::internal
