#include "sinew/rpc/membership/registrar/registry_codec.h"

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/registry.pb.h"

namespace sinew::internal::registry_codec_test {

using namespace registry;
using ::testing::HasSubstr;

constexpr auto kLease = std::chrono::seconds(15);

const WorkerInfo kAlice{"alice", 0, {7}};
const Record kRecord{{"bob", 3, {9}}, std::string("details\0of bob", 14)};
const Version kVersion{3, {7}, 12};

std::vector<Request> all_requests() {
  return {Join{kRecord, "job", 4},
          Return{kRecord, "job", 0, {1, 2, 3}, kVersion, {2, {7}, 1}, {kAlice}},
          Renew{kVersion},
          Leave{},
          Report{{8}, "no way"},
          Enter{6, "barrier", {"alice", "bob"}, std::string("\xff\0", 2)},
          Cancel{6},
          Leave{true}};
}

std::vector<Answer> all_answers() {
  const Change joined{kRecord, std::nullopt, ""};
  const Change lost{kRecord, Gone::kSilent, "not heard"};
  return {List{kVersion, {1, 2, 3}, {{kAlice, ""}, kRecord}, true},
          Update{11, kVersion, {joined, lost, Change{}}},
          Renewed{kVersion},
          Wait{"rank 1 has not come"},
          Probe{},
          ComeBack{},
          Refused{absl::AlreadyExistsError("taken")},
          Out{Gone::kLostEachOther, "it and alice"},
          Finished{6, absl::OkStatus(), {"a", std::string("\0b", 2)}},
          Finished{7, absl::UnavailableError("bob has left"), {}},
          Missing{6, "bob"}};
}

/// As what was read is written again: the same bytes for the same message.
std::string again(const std::string& bytes) {
  const absl::StatusOr<AskedOfRegistrar> asked = decode_asked(bytes);
  return asked.ok() ? encode(*asked) : asked.status().ToString();
}

TEST(RegistryCodec, RequestsAreReadAsTheyAreWritten) {
  for (const Request& request : all_requests()) {
    const std::string bytes = encode(AskedOfRegistrar{42, request});
    const absl::StatusOr<AskedOfRegistrar> read = decode_asked(bytes);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->echo, 42U);
    EXPECT_EQ(read->request.index(), request.index());
    EXPECT_EQ(again(bytes), bytes);
  }
  const auto back =
      std::get<Return>(decode_asked(encode(AskedOfRegistrar{1, all_requests()[1]}))->request);
  EXPECT_EQ(back.known.front().name, "alice");
  EXPECT_EQ(back.joined.epoch, 2U);
  EXPECT_EQ(back.self.details, kRecord.details);
}

TEST(RegistryCodec, AnswersAreReadAsTheyAreWritten) {
  SaidByRegistrar said{{7}, kLease, 3, {}};
  for (const Answer& answer : all_answers()) said.items.push_back({said.items.size(), answer});
  const std::string bytes = encode(said);
  const absl::StatusOr<SaidByRegistrar> read = decode_said(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->items.size(), said.items.size());
  for (std::size_t i = 0; i < said.items.size(); ++i) {
    EXPECT_EQ(read->items[i].token, i);
    EXPECT_EQ(read->items[i].answer.index(), said.items[i].answer.index());
  }
  EXPECT_EQ(encode(*read), bytes);
  const auto& update = std::get<Update>(read->items[1].answer);
  EXPECT_FALSE(update.changes[0].gone.has_value());
  EXPECT_EQ(update.changes[1].gone, Gone::kSilent);
  EXPECT_EQ(update.changes[2].member.worker.incarnation.value, 0U);
  EXPECT_EQ(std::get<Refused>(read->items[6].answer).why.code(), absl::StatusCode::kAlreadyExists);
}

TEST(RegistryCodec, NumbersAtTheirBoundsAreRefused) {
  const auto error_of = [](const Request& request) {
    return std::string(decode_asked(encode(AskedOfRegistrar{0, request})).status().message());
  };
  EXPECT_THAT(error_of(Renew{{kLastEpoch + 1, {7}, 1}}), HasSubstr("epoch"));
  EXPECT_THAT(error_of(Renew{{1, {7}, ~std::uint64_t{0}}}), HasSubstr("count"));
  EXPECT_EQ(error_of(Renew{{kLastEpoch, {7}, 1}}), "");
  EXPECT_THAT(error_of(Join{{{"bob", -2, {9}}, ""}, "job", 0}), HasSubstr("rank"));
  EXPECT_THAT(error_of(Join{{{"bob", 0, {0}}, ""}, "job", 0}), HasSubstr("incarnation"));
  EXPECT_THAT(error_of(Join{{{"b/b", 0, {9}}, ""}, "job", 0}), HasSubstr("b/b"));
  EXPECT_THAT(error_of(Join{kRecord, "job", -1}), HasSubstr("world size"));
  proto::RegistryRequest nothing;
  EXPECT_FALSE(decode_asked(nothing.SerializeAsString()).ok());
  EXPECT_FALSE(decode_asked("no message").ok());
  // A list has ranks, and comes from somebody.
  EXPECT_FALSE(decode_said(encode(SaidByRegistrar{{0}, kLease, 0, {}})).ok());
  const List unranked{kVersion, {}, {{{"bob", -1, {9}}, ""}}, false};
  EXPECT_FALSE(decode_said(encode(SaidByRegistrar{{7}, kLease, 0, {{1, unranked}}})).ok());
  const Update backwards{13, kVersion, {}};
  EXPECT_FALSE(decode_said(encode(SaidByRegistrar{{7}, kLease, 0, {{1, backwards}}})).ok());
}

TEST(RegistryCodec, LeasesAtTheirBoundsAreRefused) {
  proto::RegistryAnswers said;
  ASSERT_TRUE(said.ParseFromString(encode(SaidByRegistrar{{7}, kLease, 0, {}})));
  // In nanoseconds the second one is beyond its type.
  for (const std::uint64_t lease : {std::uint64_t{0}, ~std::uint64_t{0} / 4, ~std::uint64_t{0}}) {
    said.set_lease_us(lease);
    EXPECT_FALSE(decode_said(said.SerializeAsString()).ok()) << lease;
  }
}

TEST(RegistryCodec, ReasonsAreFitToBeShown) {
  const auto asked =
      decode_asked(encode(AskedOfRegistrar{0, Report{{8}, "gone\x1b[1m\nall is well"}}));
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(std::get<Report>(asked->request).reason, "gone\\x1b[1m\n  all is well");
}

}  // namespace sinew::internal::registry_codec_test
