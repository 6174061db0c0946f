// Both ends in one process, or one in a child. UCX_TLS decides what they talk by: this program is
// several tests of ctest.

#include "sinew/rpc/planes/ucx/ucx_plane.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/plane.pb.h"
#include "sinew/testing/eventually.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;
using ::testing::HasSubstr;
using Role = ConnectionEnds::Role;

constexpr auto kLong = absl::Seconds(60);

std::shared_ptr<PullPlane> new_plane(UcxOptions options = {}) {
  options.loopback_only = true;
  auto plane = make_ucx_plane(options);
  EXPECT_TRUE(plane.ok()) << plane.status();
  return plane.ok() ? *plane : nullptr;
}

/// Another context each: as two processes have.
PullPlane& owner_plane() {
  static const std::shared_ptr<PullPlane> plane = new_plane();
  return *plane;
}
PullPlane& reader_plane() {
  static const std::shared_ptr<PullPlane> plane = new_plane();
  return *plane;
}

std::string pattern(std::size_t size, std::size_t seed) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i + seed) * 7 / 3);
  return bytes;
}

/// In one piece, as a tensor's is. `bytes` must outlive it.
absl::Cord flat(const std::string& bytes) {
  return absl::MakeCordFromExternal(bytes, [] {});
}

/// Something that ends on another thread.
class Pending {
 public:
  PullLink::OnEnd on_end() {
    return [state = state_](absl::Status status) {
      state->status = std::move(status);
      state->ended.Notify();
    };
  }
  absl::Status wait() const {
    if (!state_->ended.WaitForNotificationWithTimeout(kLong)) return absl::UnknownError("no end");
    return state_->status;
  }

 private:
  struct State {
    absl::Status status;
    absl::Notification ended;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

absl::Status verify(PullLink& reader, absl::string_view proof) {
  Pending pending;
  reader.verify(proof, pending.on_end());
  return pending.wait();
}

/// A fetch that is under way, with its target.
struct Fetch {
  Fetch(PullLink& reader, absl::string_view location, std::size_t size_bytes)
      : copy(std::make_shared<std::string>(size_bytes, ' ')) {
    reader.fetch(location, {copy->data(), size_bytes, copy}, pending.on_end());
  }
  std::shared_ptr<std::string> copy;
  Pending pending;
};

absl::Status fetch(PullLink& reader, absl::string_view location, std::string& to) {
  Fetch one(reader, location, to.size());
  absl::Status status = one.pending.wait();
  to = *one.copy;
  return status;
}

/// The two ends of a connection.
struct Ends {
  explicit Ends(PullPlane& reading = reader_plane())
      : reader(reading.open({Role::kAcceptor, "reader", "owner"})) {}

  std::unique_ptr<PullLink> owner = owner_plane().open({Role::kOpener, "owner", "reader"});
  std::unique_ptr<PullLink> reader;

  absl::Status join() {
    const auto proof = owner->prove(reader->challenge());
    const auto back = reader->prove(owner->challenge());
    if (!proof.ok() || !back.ok()) return absl::InternalError("no proof");
    if (absl::Status status = verify(*owner, *back); !status.ok()) return status;
    return verify(*reader, *proof);
  }
};

TEST(UcxPlane, FetchesWhatTheOtherEndLocates) {
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
  for (const std::size_t size : {5'000, 70'000, 300'000, 5'000'000, 40'000'000}) {
    const std::string bytes = pattern(size, size);
    std::string copy(size, ' ');
    const absl::Status status = fetch(*ends.reader, *ends.owner->locate(flat(bytes)), copy);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(copy == bytes) << size;
  }
}

TEST(UcxPlane, WhatIsReleasedIsNotServed) {
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
  const std::string bytes = pattern(70'000, 1);
  std::string copy(bytes.size(), ' ');
  const std::string location = *ends.owner->locate(flat(bytes));
  ends.owner->release(location);
  const absl::Status status = fetch(*ends.reader, location, copy);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.message(), HasSubstr("does not offer it any more"));
  EXPECT_TRUE(fetch(*ends.reader, *ends.owner->locate(flat(bytes)), copy).ok());
}

TEST(UcxPlane, NothingElseIsServed) {
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
  const std::string bytes = pattern(70'000, 1);
  const std::string location = *ends.owner->locate(flat(bytes));
  std::string longer(bytes.size() + 1, ' ');
  EXPECT_TRUE(absl::IsUnavailable(fetch(*ends.reader, location, longer)));
  EXPECT_TRUE(absl::IsUnavailable(fetch(*ends.reader, std::string(8, '\xff'), longer)));
  std::string copy(bytes.size(), ' ');
  EXPECT_TRUE(fetch(*ends.reader, location, copy).ok());
  EXPECT_TRUE(absl::IsUnavailable(fetch(*ends.reader, location, copy))) << "once is enough";
}

TEST(UcxPlane, FetchesNothingOnceTheOwnerHasClosed) {
  UcxOptions options;
  options.timeout = std::chrono::seconds(2);
  const std::shared_ptr<PullPlane> plane = new_plane(options);
  Ends ends(*plane);
  ASSERT_TRUE(ends.join().ok());
  std::atomic<int> let_go{0};
  const std::string bytes = pattern(70'000, 1);
  const std::string location =
      *ends.owner->locate(absl::MakeCordFromExternal(bytes, [&] { ++let_go; }));
  ends.owner->close();
  EXPECT_EQ(let_go, 1);
  std::string copy(bytes.size(), ' ');
  // Its end of the way is closed too: UCX says so, or nobody answers.
  EXPECT_TRUE(absl::IsUnavailable(fetch(*ends.reader, location, copy)));
  EXPECT_FALSE(ends.owner->prove(ends.reader->challenge()).ok()) << "closed for good";
}

TEST(UcxPlane, AClosedReaderFetchesNothing) {
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
  const std::string bytes = pattern(70'000, 1);
  const std::string location = *ends.owner->locate(flat(bytes));
  ends.reader->close();
  std::string copy(bytes.size(), ' ');
  EXPECT_TRUE(absl::IsUnavailable(fetch(*ends.reader, location, copy)));
}

// Somebody in the middle hands on the challenges of two others, to read the memory of one of them
// through the other.
TEST(UcxPlane, AProofIsWorthNothingOnAnotherConnection) {
  Ends ends;
  const auto victim = owner_plane().open({Role::kOpener, "victim", "the one in the middle"});
  const auto proof = victim->prove(ends.reader->challenge());
  ASSERT_TRUE(proof.ok());
  ASSERT_TRUE(ends.reader->prove(victim->challenge()).ok());
  const absl::Status status = verify(*ends.reader, *proof);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.message(), HasSubstr("does not have the proof"));
}

TEST(UcxPlane, AnswersOneChallengeOnly) {
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ends.owner->prove(ends.reader->challenge()).status()));
}

TEST(UcxPlane, GarbageIsRefused) {
  proto::UcxChallenge good;
  ASSERT_TRUE(good.ParseFromString(reader_plane().open({Role::kOpener, "a", "b"})->challenge()));
  std::vector<std::string> challenges = {"", "\xff\xff", "garbage"};
  proto::UcxChallenge bad = good;
  bad.set_token("short");
  challenges.push_back(bad.SerializeAsString());
  bad = good;
  bad.set_nonce("short");
  challenges.push_back(bad.SerializeAsString());
  bad = good;
  bad.set_worker(std::string(std::size_t{9} << 10, 'x'));
  challenges.push_back(bad.SerializeAsString());
  for (const std::string& challenge : challenges) {
    EXPECT_TRUE(absl::IsInvalidArgument(Ends().owner->prove(challenge).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(verify(*Ends().reader, ""))) << "no challenge came before";
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
  EXPECT_TRUE(absl::IsInvalidArgument(verify(*ends.reader, "something")));
  std::string copy(100, ' ');
  EXPECT_TRUE(absl::IsInvalidArgument(fetch(*ends.reader, "short", copy)));
}

TEST(UcxPlane, WhoDoesNotAnswerIsGivenUp) {
  UcxOptions options;
  options.timeout = std::chrono::milliseconds(200);
  const std::shared_ptr<PullPlane> impatient = new_plane(options);
  const auto reader = impatient->open({Role::kAcceptor, "reader", "owner"});
  proto::UcxChallenge challenge;
  ASSERT_TRUE(challenge.ParseFromString(
      owner_plane().open({Role::kOpener, "owner", "reader"})->challenge()));
  // A worker that knows no such token.
  ASSERT_TRUE(reader->prove(challenge.SerializeAsString()).ok());
  const absl::Status status = verify(*reader, "");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.message(), HasSubstr("did not answer in time"));
}

TEST(UcxPlane, ManyTransfersBothWays) {
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&ends, &wrong, seed] {
      std::mt19937 random(seed);
      PullLink& from = seed % 2 == 0 ? *ends.owner : *ends.reader;
      PullLink& to = seed % 2 == 0 ? *ends.reader : *ends.owner;
      for (int round = 0; round < 10; ++round) {
        std::deque<std::string> sent;
        std::deque<Fetch> fetches;
        std::vector<std::string> locations;
        for (int i = 0; i < 12; ++i) {
          // Small, middling and large ones alike.
          const std::size_t size = std::size_t{4096} << (random() % 9);
          sent.push_back(pattern(size + random() % size, random()));
          locations.push_back(*from.locate(flat(sent.back())));
          fetches.emplace_back(to, locations.back(), sent.back().size());
        }
        for (std::size_t i = 0; i < fetches.size(); ++i) {
          if (!fetches[i].pending.wait().ok() || *fetches[i].copy != sent[i]) ++wrong;
          from.release(locations[i]);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(UcxPlane, EitherEndMayCloseWhileFetchesAreUnderWay) {
  const std::string bytes = pattern(std::size_t{24} << 20, 3);
  for (int round = 0; round < 10; ++round) {
    Ends ends;
    ASSERT_TRUE(ends.join().ok());
    std::atomic<int> let_go{0};
    std::deque<Fetch> fetches;
    for (int i = 0; i < 4; ++i) {
      const absl::Cord payload = absl::MakeCordFromExternal(bytes, [&] { ++let_go; });
      fetches.emplace_back(*ends.reader, *ends.owner->locate(payload), bytes.size());
    }
    // At another moment in each round.
    if (round > 4) {
      ASSERT_TRUE(fetches.front().pending.wait().ok());
    }
    // As the connection goes down, at both ends.
    (round % 2 == 0 ? ends.owner : ends.reader)->close();
    (round % 2 == 0 ? ends.reader : ends.owner)->close();
    for (const Fetch& one : fetches) {
      const absl::Status status = one.pending.wait();
      EXPECT_TRUE(absl::IsUnavailable(status) || (status.ok() && *one.copy == bytes)) << status;
    }
    EXPECT_TRUE(eventually([&] { return let_go == 4; }));
  }
}

TEST(UcxPlane, ReleasedWhileItIsSentItDoesNotCount) {
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
  std::string bytes = pattern(std::size_t{48} << 20, 3);
  std::atomic<int> let_go{0};
  const std::string location =
      *ends.owner->locate(absl::MakeCordFromExternal(bytes, [&] { ++let_go; }));
  const Fetch one(*ends.reader, location, bytes.size());
  ends.owner->release(location);
  const absl::Status status = one.pending.wait();
  EXPECT_TRUE(absl::IsUnavailable(status) || (status.ok() && *one.copy == bytes)) << status;
  // Not before UCX is done with it.
  EXPECT_TRUE(eventually([&] { return let_go == 1; }));
}

TEST(UcxPlane, WhatDoesNotStartSaysWhy) {
  const char* const before = std::getenv("UCX_TLS");
  const std::optional<std::string> kept =
      before == nullptr ? std::nullopt : std::optional<std::string>(before);
  ::setenv("UCX_TLS", "no_such_transport", 1);
  const auto plane = make_ucx_plane({});
  if (kept.has_value()) {
    ::setenv("UCX_TLS", kept->c_str(), 1);
  } else {
    ::unsetenv("UCX_TLS");
  }
  ASSERT_FALSE(plane.ok());
  EXPECT_THAT(plane.status().message(), HasSubstr("UCX: "));
}

/// The processor time that the engines' threads have used, in ticks.
std::uint64_t ticks_of_engines() {
  std::uint64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::getline(std::ifstream(entry.path() / "stat"), line);
    if (line.find("(sinew-ucx)") == std::string::npos) continue;
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    std::uint64_t user = 0;
    std::uint64_t system = 0;
    fields >> user >> system;
    total += user + system;
  }
  return total;
}

TEST(UcxPlane, SleepsWhenThereIsNothingToDo) {
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
  EXPECT_TRUE(eventually([] {
    const std::uint64_t before = ticks_of_engines();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return ticks_of_engines() <= before + 1;
  }));
}

// ---- with a child

constexpr const char* kChildSocket = "SINEW_TEST_UCX_SOCKET";
constexpr std::size_t kChildBytes = std::size_t{32} << 20;

void write_text(int socket, const std::string& text) {
  ASSERT_EQ(::send(socket, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

std::string read_text(int socket) {
  std::string text(std::size_t{16} << 10, '\0');
  const ssize_t size = ::recv(socket, text.data(), text.size(), 0);
  EXPECT_GT(size, 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

/// The rest of a child's life: locates as many payloads as it is told.
TEST(UcxChild, DISABLED_Owner) {
  const char* const number = std::getenv(kChildSocket);
  if (number == nullptr) GTEST_SKIP() << "the tests of UcxPlane run it";
  const int socket = std::atoi(number);
  const auto link = owner_plane().open({Role::kOpener, "owner", "reader"});
  write_text(socket, link->challenge());
  ASSERT_TRUE(link->prove(read_text(socket)).ok());
  write_text(socket, "proved");
  const std::string bytes = pattern(kChildBytes, 5);
  while (read_text(socket) == "locate") write_text(socket, *link->locate(flat(bytes)));
}

class Child {
 public:
  Child() {
    int sockets[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    const std::string setting = absl::StrCat(kChildSocket, "=", sockets[1]);
    std::vector<char*> environment;
    for (char** each = environ; *each != nullptr; ++each) environment.push_back(*each);
    environment.push_back(const_cast<char*>(setting.c_str()));
    environment.push_back(nullptr);
    const char* const arguments[] = {"child", "--gtest_filter=UcxChild.*",
                                     "--gtest_also_run_disabled_tests", nullptr};
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execve("/proc/self/exe", const_cast<char**>(arguments), environment.data());
      ::_exit(127);
    }
    ::close(sockets[1]);
    socket_ = sockets[0];
  }
  ~Child() {
    kill();
    ::close(socket_);
  }
  int socket() const { return socket_; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    EXPECT_EQ(::waitpid(process_, nullptr, 0), process_);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
  int socket_ = -1;
};

TEST(UcxPlane, ReachesOtherProcessesForAsLongAsTheyLive) {
  Child child;
  const auto reader = reader_plane().open({Role::kAcceptor, "reader", "owner"});
  const std::string challenge = read_text(child.socket());
  write_text(child.socket(), reader->challenge());
  ASSERT_EQ(read_text(child.socket()), "proved");
  ASSERT_TRUE(reader->prove(challenge).ok());
  const absl::Status verified = verify(*reader, "");
  ASSERT_TRUE(verified.ok()) << verified;

  const std::string bytes = pattern(kChildBytes, 5);
  const auto locate = [&] {
    write_text(child.socket(), "locate");
    return read_text(child.socket());
  };
  std::string copy(kChildBytes, ' ');
  ASSERT_TRUE(fetch(*reader, locate(), copy).ok());
  EXPECT_TRUE(copy == bytes);

  std::deque<Fetch> fetches;
  for (int i = 0; i < 6; ++i) fetches.emplace_back(*reader, locate(), kChildBytes);
  EXPECT_TRUE(fetches.front().pending.wait().ok());
  child.kill();
  for (const Fetch& one : fetches) {
    const absl::Status status = one.pending.wait();
    EXPECT_TRUE(absl::IsUnavailable(status) || (status.ok() && *one.copy == bytes)) << status;
  }
  EXPECT_TRUE(absl::IsUnavailable(fetch(*reader, std::string(8, '\1'), copy)));
  // Those that live are not concerned.
  Ends ends;
  ASSERT_TRUE(ends.join().ok());
}

}  // namespace
}  // namespace sinew::internal
