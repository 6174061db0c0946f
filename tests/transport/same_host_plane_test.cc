#include "sinew/rpc/planes/same_host/same_host_plane.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/plane.pb.h"

namespace sinew::internal {
namespace {

using testing::HasSubstr;

const std::unique_ptr<PullPlane> plane = make_same_host_plane();

absl::Status verify_proof(PullLink& reader, absl::string_view proof) {
  absl::Status result = absl::UnknownError("no answer");
  reader.verify(proof, [&](absl::Status status) { result = std::move(status); });
  return result;
}

/// In one piece, as a tensor's is. `bytes` must outlive it.
absl::Cord flat(absl::string_view bytes) {
  return absl::MakeCordFromExternal(bytes, [] {});
}

/// The two ends of a connection, both in this process.
struct Ends {
  std::unique_ptr<PullLink> owner = plane->open("owner", "reader");
  std::unique_ptr<PullLink> reader = plane->open("reader", "owner");

  absl::Status verify() {
    const auto proof = owner->prove(reader->challenge());
    return proof.ok() ? verify_proof(*reader, *proof) : proof.status();
  }
};

absl::Status fetch(PullLink& reader, const std::string& location, std::string& to) {
  absl::Status result = absl::UnknownError("no answer");
  reader.fetch(location, {to.data(), to.size(), nullptr},
               [&](absl::Status status) { result = std::move(status); });
  return result;
}

TEST(SameHostPlane, FetchesWhatTheOtherEndLocates) {
  Ends ends;
  ASSERT_TRUE(ends.verify().ok());
  // The second one is copied in pieces, by several threads.
  for (const std::size_t size : {std::size_t{300'000}, (std::size_t{20} << 20) + 1}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 / 3);
    std::string copy(bytes.size(), ' ');
    ASSERT_TRUE(fetch(*ends.reader, *ends.owner->locate(flat(bytes)), copy).ok());
    EXPECT_TRUE(copy == bytes) << size << " bytes";
  }
}

TEST(SameHostPlane, FetchesNothingOnceTheOwnerHasClosed) {
  Ends ends;
  ASSERT_TRUE(ends.verify().ok());
  const std::string bytes(5000, 'x');
  const std::string location = *ends.owner->locate(flat(bytes));
  ends.owner->close();
  std::string copy(bytes.size(), ' ');
  const absl::Status status = fetch(*ends.reader, location, copy);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("closed the connection"));
  EXPECT_FALSE(ends.owner->prove(ends.reader->challenge()).ok()) << "closed for good";
}

// Somebody in the middle hands on the challenge that it got to a third one, whose memory it wants
// the reader to read for it.
TEST(SameHostPlane, AProofIsWorthNothingOnAnotherConnection) {
  Ends ends;
  const auto victim = plane->open("victim", "the one in the middle");
  const auto proof = victim->prove(ends.reader->challenge());
  ASSERT_TRUE(proof.ok());
  EXPECT_TRUE(absl::IsUnavailable(verify_proof(*ends.reader, *proof)));
}

TEST(SameHostPlane, AnswersOneChallengeOnly) {
  Ends ends;
  ASSERT_TRUE(ends.verify().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ends.owner->prove(ends.reader->challenge()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ends.reader->prove("short").status()));
}

proto::SameHostProof proof_of(Ends& ends) {
  proto::SameHostProof proof;
  EXPECT_TRUE(proof.ParseFromString(*ends.owner->prove(ends.reader->challenge())));
  return proof;
}

TEST(SameHostPlane, OtherHostsAreNotReached) {
  Ends ends;
  proto::SameHostProof proof = proof_of(ends);
  proof.set_boot_id("another one");
  EXPECT_TRUE(absl::IsNotFound(verify_proof(*ends.reader, proof.SerializeAsString())));
}

TEST(SameHostPlane, WrongPlacesAreNoProof) {
  for (const bool unmapped : {false, true}) {
    Ends ends;
    proto::SameHostProof proof = proof_of(ends);
    static const std::string elsewhere(64, 'x');
    proof.set_address(unmapped ? 8 : reinterpret_cast<std::uintptr_t>(elsewhere.data()));
    EXPECT_TRUE(absl::IsUnavailable(verify_proof(*ends.reader, proof.SerializeAsString())));
  }
}

// Nothing that anybody need be told: it happens when a worker leaves soon after it came.
TEST(SameHostPlane, AnOwnerThatHasClosedAlreadyIsNotReached) {
  Ends ends;
  const proto::SameHostProof proof = proof_of(ends);
  ends.owner->close();
  EXPECT_TRUE(absl::IsNotFound(verify_proof(*ends.reader, proof.SerializeAsString())));
}

TEST(SameHostPlane, AnOwnerThatIsGoneIsNotReachedWhateverTookItsMemory) {
  Ends ends;
  const proto::SameHostProof proof = proof_of(ends);
  ends.owner.reset();
  std::vector<std::string> blocks;
  std::vector<std::unique_ptr<PullLink>> others;
  for (std::size_t bytes = 16; bytes <= 1024; bytes += 16) {
    for (int i = 0; i < 10; ++i) blocks.emplace_back(bytes, 'x');
  }
  for (int i = 0; i < 100; ++i) {
    others.push_back(plane->open("other", "reader"));
    ASSERT_TRUE(others.back()->prove(ends.reader->challenge()).ok());
  }
  EXPECT_TRUE(absl::IsNotFound(verify_proof(*ends.reader, proof.SerializeAsString())));
}

TEST(SameHostPlane, ProcessesThatAreNotThereAreNoProof) {
  Ends ends;
  proto::SameHostProof proof = proof_of(ends);
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
  proof.set_process(gone);
  EXPECT_TRUE(absl::IsUnavailable(verify_proof(*ends.reader, proof.SerializeAsString())));
}

TEST(SameHostPlane, GarbageIsRefused) {
  for (const char* const garbage : {"", "\xff\xff", "garbage"}) {
    Ends ends;
    EXPECT_TRUE(absl::IsInvalidArgument(verify_proof(*ends.reader, garbage))) << garbage;
  }
  Ends ends;
  ASSERT_TRUE(ends.verify().ok());
  std::string copy(100, ' ');
  EXPECT_TRUE(absl::IsInvalidArgument(fetch(*ends.reader, "short", copy)));
  EXPECT_TRUE(absl::IsInvalidArgument(fetch(*ends.reader, std::string(8, '\xff'), copy)));
}

TEST(SameHostPlane, MemoryThatEndsEarlyIsAnError) {
  Ends ends;
  ASSERT_TRUE(ends.verify().ok());
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const pages =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  std::memset(pages, 1, 2 * page);
  ASSERT_EQ(::mprotect(static_cast<char*>(pages) + page, page, PROT_NONE), 0);
  std::string copy(2 * page, ' ');
  const absl::Status status =
      fetch(*ends.reader, *ends.owner->locate(flat({static_cast<char*>(pages), 2 * page})), copy);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(::munmap(pages, 2 * page), 0);
}

/// A process with the proof and some bytes in its memory, which it inherits from this one.
class Child {
 public:
  Child() : process_(::fork()) {
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
  }
  ~Child() { kill(); }
  pid_t process() const { return process_; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    EXPECT_EQ(::waitpid(process_, nullptr, 0), process_);
    process_ = 0;
  }

 private:
  pid_t process_;
};

TEST(SameHostPlane, ReachesOtherProcessesForAsLongAsTheyLive) {
  Ends ends;
  proto::SameHostProof proof = proof_of(ends);
  std::string bytes(5000, 'x');
  Child child;
  ASSERT_GT(child.process(), 0);
  proof.set_process(child.process());
  const absl::Status verified = verify_proof(*ends.reader, proof.SerializeAsString());
  if (verified.message().find("Operation not permitted") != std::string::npos) {
    GTEST_SKIP() << "the system forbids it: " << verified;
  }
  ASSERT_TRUE(verified.ok()) << verified;
  const std::string location = *ends.owner->locate(flat(bytes));
  bytes.assign(bytes.size(), 'y');  // Here, not there.
  std::string copy(bytes.size(), ' ');
  ASSERT_TRUE(fetch(*ends.reader, location, copy).ok());
  EXPECT_EQ(copy, std::string(bytes.size(), 'x'));
  child.kill();
  EXPECT_TRUE(absl::IsUnavailable(fetch(*ends.reader, location, copy)));
}

TEST(SameHostPlane, OtherUsersAreNotReached) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root could read another user's memory";
  Ends ends;
  proto::SameHostProof proof = proof_of(ends);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    constexpr uid_t kNobody = 65534;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char done = ::setresuid(kNobody, kNobody, kNobody) == 0 ? 'y' : 'n';
    // Otherwise the entries in /proc stay root's.
    ::prctl(PR_SET_DUMPABLE, 1);
    if (::write(ready[1], &done, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char became = 'n';
  ASSERT_EQ(::read(ready[0], &became, 1), 1);
  proof.set_process(other);
  const absl::Status status = verify_proof(*ends.reader, proof.SerializeAsString());
  ::kill(other, SIGKILL);
  ASSERT_EQ(::waitpid(other, nullptr, 0), other);
  ::close(ready[0]);
  ::close(ready[1]);
  if (became != 'y') GTEST_SKIP() << "this process may not become another user";
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.message(), HasSubstr("another user"));
}

}  // namespace
}  // namespace sinew::internal
