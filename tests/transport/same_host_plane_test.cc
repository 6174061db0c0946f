#include "sinew/rpc/planes/same_host/same_host_plane.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/planes/challenge.h"
#include "sinew/tests/transport/same_host_ends.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;

const std::unique_ptr<PullPlane> plane = make_same_host_plane();

class SameHostPlane : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status met = Ends(*plane).meet();
    if (is_forbidden(met)) GTEST_SKIP() << "the system forbids it: " << met;
  }
};

TEST_F(SameHostPlane, FetchesWhatTheOtherEndLocates) {
  Ends ends(*plane);
  ASSERT_TRUE(ends.meet().ok());
  // The second one is copied in pieces, by several threads.
  for (const std::size_t size : {std::size_t{300'000}, (std::size_t{20} << 20) + 1}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 / 3);
    for (const auto& [owner, reader] : {std::pair(ends.opener.get(), ends.acceptor.get()),
                                        std::pair(ends.acceptor.get(), ends.opener.get())}) {
      std::string copy(bytes.size(), ' ');
      ASSERT_TRUE(fetch(*reader, *owner->locate(flat(bytes)), copy).ok());
      EXPECT_TRUE(copy == bytes) << size << " bytes";
    }
  }
}

TEST_F(SameHostPlane, MeetsAsOlderKernelsDo) {
  SameHostOptions options;
  options.process_source = PeerProcess::Source::kNumber;
  const std::unique_ptr<PullPlane> older = make_same_host_plane(options);
  Ends ends(*older);
  const absl::Status met = ends.meet();
  ASSERT_TRUE(met.ok()) << met;
  const std::string bytes(5000, 'x');
  std::string copy(bytes.size(), ' ');
  ASSERT_TRUE(fetch(*ends.opener, *ends.acceptor->locate(flat(bytes)), copy).ok());
  EXPECT_EQ(copy, bytes);
}

TEST_F(SameHostPlane, ManyMeetAtOnce) {
  std::vector<std::unique_ptr<Ends>> all;
  std::vector<std::pair<Verdict, Verdict>> verdicts;
  for (int i = 0; i < 60; ++i) {
    Ends& ends = *all.emplace_back(std::make_unique<Ends>(*plane));
    const auto from_opener = ends.opener->prove(ends.acceptor->challenge());
    const auto from_acceptor = ends.acceptor->prove(ends.opener->challenge());
    ASSERT_TRUE(from_opener.ok() && from_acceptor.ok()) << from_acceptor.status();
    auto& [of_opener, of_acceptor] = verdicts.emplace_back();
    ends.acceptor->verify(*from_opener, of_acceptor.on_end());
    ends.opener->verify(*from_acceptor, of_opener.on_end());
  }
  for (const auto& [of_opener, of_acceptor] : verdicts) {
    EXPECT_TRUE(of_opener.wait().ok()) << of_opener.wait();
    EXPECT_TRUE(of_acceptor.wait().ok()) << of_acceptor.wait();
  }
}

TEST_F(SameHostPlane, FetchesNothingBeforeTheEndsHaveMet) {
  Ends ends(*plane);
  const std::string bytes(5000, 'x');
  std::string copy(bytes.size(), ' ');
  EXPECT_TRUE(
      absl::IsInvalidArgument(fetch(*ends.opener, *ends.acceptor->locate(flat(bytes)), copy)));
}

TEST_F(SameHostPlane, FetchesNothingOnceTheOwnerHasClosed) {
  Ends ends(*plane);
  ASSERT_TRUE(ends.meet().ok());
  const std::string bytes(5000, 'x');
  const std::string location = *ends.acceptor->locate(flat(bytes));
  ends.acceptor->close();
  std::string copy(bytes.size(), ' ');
  const absl::Status status = fetch(*ends.opener, location, copy);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("closed the connection"));
}

TEST_F(SameHostPlane, FetchesNothingOfAnOwnerThatIsGoneWhateverTookItsMemory) {
  Ends ends(*plane);
  ASSERT_TRUE(ends.meet().ok());
  const std::string bytes(5000, 'x');
  const std::string location = *ends.acceptor->locate(flat(bytes));
  ends.acceptor.reset();
  std::vector<std::string> blocks;
  std::vector<std::unique_ptr<PullLink>> others;
  for (std::size_t size = 16; size <= 1024; size += 16) {
    for (int i = 0; i < 10; ++i) blocks.emplace_back(size, 'x');
  }
  for (int i = 0; i < 100; ++i) others.push_back(plane->open({Role::kOpener, "other", "reader"}));
  std::string copy(bytes.size(), ' ');
  EXPECT_TRUE(absl::IsNotFound(fetch(*ends.opener, location, copy)));
}

TEST_F(SameHostPlane, AnswersOneChallengeOnly) {
  Ends ends(*plane);
  ASSERT_TRUE(ends.meet().ok());
  for (PullLink* const link : {ends.opener.get(), ends.acceptor.get()}) {
    EXPECT_TRUE(
        absl::IsFailedPrecondition(link->prove(challenge_with(new_challenge(), *link)).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(link->prove("short").status()));
    EXPECT_TRUE(absl::IsInvalidArgument(link->prove("").status()));
  }
}

// Nothing that anybody need be told.
TEST_F(SameHostPlane, OtherHostsAreNotReached) {
  Ends ends(*plane);
  proto::SameHostChallenge challenge;
  ASSERT_TRUE(challenge.ParseFromString(ends.opener->challenge()));
  challenge.set_boot_id("another one");
  for (PullLink* const link : {ends.opener.get(), ends.acceptor.get()}) {
    EXPECT_TRUE(absl::IsNotFound(link->prove(challenge.SerializeAsString()).status()));
  }
  EXPECT_TRUE(absl::IsNotFound(verify(*ends.acceptor, "")));
  EXPECT_TRUE(absl::IsNotFound(verify(*ends.opener, std::string(16, 'x'))));
}

// Likewise: it happens when a worker leaves soon after it came.
TEST_F(SameHostPlane, AnEndThatClosesMeanwhileIsNotReached) {
  Ends ends(*plane);
  ASSERT_TRUE(ends.acceptor->prove(ends.opener->challenge()).ok());
  Verdict verdict;
  ends.acceptor->verify("", verdict.on_end());
  ends.acceptor->close();
  EXPECT_TRUE(absl::IsNotFound(verdict.wait())) << verdict.wait();
  EXPECT_FALSE(ends.opener->prove("").ok());
  ends.opener->close();
  EXPECT_TRUE(absl::IsFailedPrecondition(ends.opener->prove(ends.acceptor->challenge()).status()));
}

TEST_F(SameHostPlane, ALinkMayGoWhileItsEndsMeet) {
  Verdict verdict;
  {
    const std::unique_ptr<PullPlane> own = make_same_host_plane();
    Ends ends(*own);
    ASSERT_TRUE(ends.acceptor->prove(ends.opener->challenge()).ok());
    ends.acceptor->verify("", verdict.on_end());
  }
  EXPECT_TRUE(absl::IsNotFound(verdict.wait())) << verdict.wait();
}

TEST_F(SameHostPlane, NobodyIsWaitedForTooLong) {
  SameHostOptions options;
  options.meeting_timeout = std::chrono::milliseconds(20);
  const std::unique_ptr<PullPlane> impatient = make_same_host_plane(options);
  Ends ends(*impatient);
  const auto place = ends.acceptor->prove(ends.opener->challenge());
  ASSERT_TRUE(place.ok()) << place.status();
  const absl::Status nobody_came = verify(*ends.acceptor, "");
  EXPECT_TRUE(absl::IsUnavailable(nobody_came)) << nobody_came;
  EXPECT_THAT(nobody_came.message(), HasSubstr("did not come"));
  ASSERT_TRUE(ends.opener->prove(ends.acceptor->challenge()).ok());
  const absl::Status nobody_is_there = verify(*ends.opener, *place);
  EXPECT_TRUE(absl::IsUnavailable(nobody_is_there)) << nobody_is_there;
  EXPECT_THAT(nobody_is_there.message(), HasSubstr("no process is at"));
}

TEST_F(SameHostPlane, GarbageIsRefused) {
  for (const char* const garbage : {"", "\xff\xff", "garbage"}) {
    Ends ends(*plane);
    ASSERT_TRUE(ends.opener->prove(ends.acceptor->challenge()).ok());
    EXPECT_TRUE(absl::IsInvalidArgument(verify(*ends.opener, garbage))) << garbage;
  }
  Ends early(*plane);
  EXPECT_TRUE(absl::IsInvalidArgument(verify(*early.opener, std::string(16, 'x'))));
  EXPECT_TRUE(absl::IsInvalidArgument(verify(*early.acceptor, "")));
}

TEST_F(SameHostPlane, MemoryThatEndsEarlyIsAnError) {
  Ends ends(*plane);
  ASSERT_TRUE(ends.meet().ok());
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const pages =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  std::memset(pages, 1, 2 * page);
  ASSERT_EQ(::mprotect(static_cast<char*>(pages) + page, page, PROT_NONE), 0);
  std::string copy(2 * page, ' ');
  const absl::Status status = fetch(
      *ends.opener, *ends.acceptor->locate(flat({static_cast<char*>(pages), 2 * page})), copy);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(::munmap(pages, 2 * page), 0);
}

}  // namespace
}  // namespace sinew::internal
