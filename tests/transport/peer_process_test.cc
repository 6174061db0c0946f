#include "sinew/rpc/planes/same_host/peer_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/transport/listening_process.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;
using Source = PeerProcess::Source;

absl::StatusOr<PeerProcess> listener_at(const std::string& place, Source source = Source::kSocket) {
  absl::StatusOr<std::optional<FileDescriptor>> socket = connect_to_place(place);
  if (!socket.ok()) return socket.status();
  if (!socket->has_value()) return absl::InternalError("nobody is there");
  return PeerProcess::of(**socket, source);
}

bool write_to(const char* file, const char* text) {
  const FileDescriptor out(::open(file, O_WRONLY | O_CLOEXEC));
  return ::write(out.number(), text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text));
}

TEST(PeerProcess, IsTheOneThatListens) {
  for (const Source source : {Source::kSocket, Source::kNumber}) {
    ListeningProcess other({});
    ASSERT_TRUE(other.listens());
    const absl::StatusOr<PeerProcess> process = listener_at(other.place(), source);
    ASSERT_TRUE(process.ok()) << process.status();
    EXPECT_EQ(process->number(), other.number());
    EXPECT_TRUE(process->is_alive());
    EXPECT_TRUE(process->is_sender({other.number(), ::geteuid(), ::getegid()}));
    EXPECT_FALSE(process->is_sender({::getpid(), ::geteuid(), ::getegid()}));
    EXPECT_FALSE(process->is_sender({other.number(), ::geteuid() + 1, ::getegid()}));
    other.kill();
    EXPECT_FALSE(process->is_alive());
  }
}

TEST(PeerProcess, HasEndedOnlyWhenItHas) {
  ListeningProcess other({});
  ASSERT_TRUE(other.listens());
  const absl::StatusOr<PeerProcess> process = listener_at(other.place());
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_FALSE(process->has_ended());
  ASSERT_EQ(::kill(other.number(), SIGSTOP), 0);
  int state = 0;
  ASSERT_EQ(::waitpid(other.number(), &state, WUNTRACED), other.number());
  ASSERT_TRUE(WIFSTOPPED(state));
  EXPECT_FALSE(process->has_ended());
  other.kill();
  EXPECT_TRUE(process->has_ended());
}

TEST(PeerProcess, IsTheOneThatConnected) {
  const std::string place = new_challenge();
  const absl::StatusOr<FileDescriptor> listener = listen_at(place);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto visitor = connect_to_place(place);
  ASSERT_TRUE(visitor.ok() && visitor->has_value()) << visitor.status();
  const auto accepted = accept_at(*listener);
  ASSERT_TRUE(accepted.ok() && accepted->has_value()) << accepted.status();
  const absl::StatusOr<PeerProcess> process = PeerProcess::of(**accepted, Source::kSocket);
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(process->number(), ::getpid());
}

// The system would let root read it.
TEST(PeerProcess, OfAnotherUserIsNone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  const ListeningProcess other({[] {
    constexpr uid_t kNobody = 65534;
    const bool became = ::setresuid(kNobody, kNobody, kNobody) == 0;
    // Otherwise the entries in /proc stay root's.
    ::prctl(PR_SET_DUMPABLE, 1);
    return became;
  }});
  if (!other.listens()) GTEST_SKIP() << "this process may not become another user";
  const absl::Status status = listener_at(other.place()).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.message(), HasSubstr("another user"));
}

// The same number there is not the same user.
TEST(PeerProcess, OfAnotherNamespaceOfUsersIsNone) {
  const std::string map = absl::StrCat(::geteuid(), " ", ::geteuid(), " 1");
  const ListeningProcess other({[&] {
    return ::unshare(CLONE_NEWUSER) == 0 && write_to("/proc/self/uid_map", map.c_str());
  }});
  if (!other.listens()) GTEST_SKIP() << "this process may not make a namespace of users";
  const absl::Status status = listener_at(other.place()).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.message(), HasSubstr("another namespace"));
}

// Its number here is one that it does not know.
TEST(PeerProcess, OfAnotherNamespaceOfProcessesIsNone) {
  const ListeningProcess other({[] {
    if (::unshare(CLONE_NEWPID) != 0) return false;
    // Only children are in it. They go with this one.
    if (::fork() != 0) {
      for (;;) ::pause();
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return true;
  }});
  if (!other.listens()) GTEST_SKIP() << "this process may not make a namespace of processes";
  const absl::Status status = listener_at(other.place()).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.message(), HasSubstr("another namespace"));
}

}  // namespace
}  // namespace sinew::internal
