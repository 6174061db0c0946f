#include "sinew/rpc/planes/plane_set.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/plane.pb.h"
#include "sinew/tests/support/fake_plane.h"

namespace sinew::internal {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Role = ConnectionEnds::Role;

struct End {
  explicit End(std::vector<std::shared_ptr<FakePlane>> fakes) {
    planes.planes.assign(fakes.begin(), fakes.end());
    planes.log = [this](const std::string& text) { log.push_back(text); };
  }
  void prepare(ConnectionEnds::Role role, const std::string& local_hello,
               const std::string& remote_hello) {
    set.prepare({role, local_hello, remote_hello}, owner, [this](auto messages) {
      if (messages.ok()) {
        outbox.insert(outbox.end(), messages->begin(), messages->end());
      } else {
        complaint = messages.status();
      }
    });
  }
  Planes planes;
  std::vector<std::string> log;
  std::vector<std::string> outbox;
  absl::Status complaint;
  std::shared_ptr<int> owner = std::make_shared<int>();
  PlaneSet set{planes};
};

/// Carries messages both ways until there are no more.
void exchange(End& a, End& b) {
  while (!a.outbox.empty() || !b.outbox.empty()) {
    for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      for (const std::string& message : std::exchange(from->outbox, {})) {
        to->set.on_message(message);
        ASSERT_TRUE(to->complaint.ok()) << to->complaint;
      }
    }
  }
}

void prepare(End& a, End& b) {
  a.prepare(Role::kOpener, "a", "b");
  b.prepare(Role::kAcceptor, "b", "a");
}

void join(End& a, End& b) {
  prepare(a, b);
  a.set.begin();
  exchange(a, b);
}

absl::Status fetch(End& end, const PlaneSet::Location& from, std::string& to) {
  absl::Status result = absl::UnknownError("no answer");
  end.set.fetch(from.plane, from.text, {to.data(), to.size(), nullptr},
                [&](absl::Status status) { result = std::move(status); });
  return result;
}

/// In one piece, as a tensor's is. `bytes` must outlive it.
absl::Cord flat(const std::string& bytes) {
  return absl::MakeCordFromExternal(bytes, [] {});
}

TEST(PlaneSet, FindsThePlaneThatBothEndsHave) {
  const auto only_a = std::make_shared<FakePlane>(5);
  const auto both = std::make_shared<FakePlane>(6);
  End a({only_a, both});
  End b({both});
  EXPECT_EQ(a.set.locate(absl::Cord("bytes")).plane, 0U) << "nothing is proven yet";
  join(a, b);
  const std::string bytes = "some bytes";
  const PlaneSet::Location location = a.set.locate(flat(bytes));
  EXPECT_EQ(location.plane, 6U);
  std::string copy(bytes.size(), ' ');
  EXPECT_TRUE(fetch(b, location, copy).ok());
  EXPECT_EQ(copy, bytes);
  EXPECT_EQ(b.planes.fetched_bytes, static_cast<std::int64_t>(bytes.size()));
  EXPECT_EQ(b.planes.fetched_transfers, 1);
}

TEST(PlaneSet, TheFirstPayloadBegins) {
  const std::string bytes(1000, 'x');
  End a({std::make_shared<FakePlane>(5)});
  End b({std::make_shared<FakePlane>(5)});
  prepare(a, b);
  EXPECT_THAT(a.outbox, IsEmpty());
  EXPECT_EQ(a.set.locate(flat(bytes)).plane, 0u) << "it goes another way";
  EXPECT_EQ(a.set.locate(flat(bytes)).plane, 0u);
  EXPECT_THAT(a.outbox, SizeIs(1)) << "once";
  exchange(a, b);
  EXPECT_EQ(a.set.locate(flat(bytes)).plane, 5u);
  EXPECT_EQ(b.set.locate(flat(bytes)).plane, 5u);
}

TEST(PlaneSet, APayloadMayBeSentBeforeTheConnectionIsUp) {
  const std::string bytes(1000, 'x');
  End a({std::make_shared<FakePlane>(5)});
  End b({std::make_shared<FakePlane>(5)});
  EXPECT_EQ(a.set.locate(flat(bytes)).plane, 0u);
  EXPECT_THAT(a.outbox, IsEmpty());
  prepare(a, b);
  exchange(a, b);
  EXPECT_EQ(a.set.locate(flat(bytes)).plane, 5u);
}

TEST(PlaneSet, TheFirstOneIsPreferred) {
  const auto first = std::make_shared<FakePlane>(5);
  const auto second = std::make_shared<FakePlane>(6);
  End a({first, second});
  End b({first, second});
  join(a, b);
  EXPECT_EQ(a.set.locate(absl::Cord("bytes")).plane, 5U);
}

TEST(PlaneSet, WhoIsNotReachedGetsNoLocations) {
  const auto plane = std::make_shared<FakePlane>();
  plane->verdict = absl::UnavailableError("another user");
  End a({plane});
  End b({plane});
  join(a, b);
  EXPECT_EQ(a.set.locate(absl::Cord("bytes")).plane, 0U);
  ASSERT_THAT(a.log, SizeIs(1));
  EXPECT_THAT(a.log[0], HasSubstr("another user"));
}

TEST(PlaneSet, OrdinaryReasonsAreNotWorthALine) {
  const auto plane = std::make_shared<FakePlane>();
  plane->verdict = absl::NotFoundError("another host");
  End a({plane});
  End b({plane});
  join(a, b);
  EXPECT_EQ(a.set.locate(absl::Cord("bytes")).plane, 0U);
  EXPECT_THAT(a.log, IsEmpty());
}

TEST(PlaneSet, RestsAfterAFailureAndSaysSoOnce) {
  const auto failing = std::make_shared<FakePlane>(5);
  const auto other = std::make_shared<FakePlane>(6);
  End a({failing, other});
  End b({failing, other});
  join(a, b);
  failing->behaviour = FakePlane::Behaviour::kFails;
  std::string copy(5, ' ');
  for (int i = 0; i < 3; ++i) {
    const PlaneSet::Location location{5, std::string(8, '\0')};
    EXPECT_TRUE(absl::IsUnavailable(fetch(b, location, copy)));
  }
  EXPECT_EQ(b.planes.failed_transfers, 3);
  ASSERT_THAT(b.log, SizeIs(1));
  EXPECT_THAT(b.log[0], HasSubstr("as the test wants"));
  // What the peer said of it.
  a.set.on_failed(5);
  EXPECT_EQ(a.set.locate(absl::Cord("bytes")).plane, 6U) << "the next one serves meanwhile";
}

TEST(PlaneSet, FetchesNothingThatIsNotProven) {
  const auto plane = std::make_shared<FakePlane>();
  End a({plane});
  a.prepare(Role::kOpener, "a", "b");
  a.set.begin();
  std::string copy(5, ' ');
  EXPECT_TRUE(absl::IsInvalidArgument(fetch(a, {77, std::string(8, '\0')}, copy)));
  EXPECT_TRUE(absl::IsInvalidArgument(fetch(a, {78, std::string(8, '\0')}, copy)));
}

TEST(PlaneSet, RefusesMessagesWithoutSense) {
  const auto plane = std::make_shared<FakePlane>();
  End a({plane});
  a.prepare(Role::kOpener, "a", "b");
  a.set.begin();
  a.set.on_message("\xff garbage");
  EXPECT_TRUE(absl::IsInvalidArgument(a.complaint));
}

TEST(PlaneSet, RefusesASecondProof) {
  const auto plane = std::make_shared<FakePlane>();
  End a({plane});
  End b({plane});
  join(a, b);
  proto::PlaneMessage again;
  again.set_plane(77);
  again.set_proof("challenge by b");
  a.set.on_message(again.SerializeAsString());
  EXPECT_TRUE(absl::IsInvalidArgument(a.complaint));
}

TEST(PlaneSet, RefusesTheProofOfSomebodyElse) {
  const auto plane = std::make_shared<FakePlane>();
  End c({plane});
  c.prepare(Role::kAcceptor, "c", "d");
  c.set.begin();
  proto::PlaneMessage forged;
  forged.set_plane(77);
  forged.set_proof("challenge by somebody else");
  c.set.on_message(forged.SerializeAsString());
  EXPECT_TRUE(absl::IsInvalidArgument(c.complaint));
}

TEST(PlaneSet, AVerificationMayTakeItsTime) {
  const auto plane = std::make_shared<FakePlane>();
  plane->verifies_later = true;
  End a({plane});
  End b({plane});
  join(a, b);
  EXPECT_EQ(a.set.locate(absl::Cord("bytes")).plane, 0U) << "nothing is proven yet";
  plane->end_verifications();
  exchange(a, b);
  EXPECT_EQ(a.set.locate(absl::Cord("bytes")).plane, 77U);
}

TEST(PlaneSet, AVerificationMayOutliveIt) {
  const auto plane = std::make_shared<FakePlane>();
  plane->verifies_later = true;
  {
    End a({plane});
    End b({plane});
    join(a, b);
  }
  plane->end_verifications();  // Touches nothing that is gone.
}

TEST(PlaneSet, TellsThePlaneWhatIsReleased) {
  const auto plane = std::make_shared<FakePlane>();
  End a({plane});
  End b({plane});
  join(a, b);
  a.set.release(a.set.locate(absl::Cord("bytes")));
  EXPECT_EQ(plane->released, 1);
}

TEST(PlaneSet, IsSilentWhenItIsClosed) {
  const auto plane = std::make_shared<FakePlane>();
  End a({plane});
  End b({plane});
  join(a, b);
  a.set.close();
  a.set.close();
  EXPECT_EQ(plane->closed, 1);
  EXPECT_EQ(a.set.locate(absl::Cord("bytes")).plane, 0U);
  std::string copy(5, ' ');
  EXPECT_FALSE(fetch(a, {77, std::string(8, '\0')}, copy).ok());
}

}  // namespace
}  // namespace sinew::internal
