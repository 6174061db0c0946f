// What peers, and those in between, try in order to have memory read that is not theirs. Where the
// connection has no credentials they see and change all that goes over it, so all of them know the
// nonces and the hellos.

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/planes/challenge.h"
#include "sinew/rpc/planes/same_host/greeting.h"
#include "sinew/rpc/planes/same_host/location_seal.h"
#include "sinew/rpc/planes/same_host/meeting_place.h"
#include "sinew/rpc/planes/same_host/meeting_socket.h"
#include "sinew/rpc/planes/same_host/remote_memory.h"
#include "sinew/rpc/planes/same_host/shown_word.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/transport/listening_process.h"
#include "sinew/tests/transport/same_host_ends.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;
using ::testing::HasSubstr;

const std::unique_ptr<PullPlane> plane = make_same_host_plane();

std::unique_ptr<PullPlane> impatient_plane() {
  SameHostOptions options;
  options.meeting_timeout = std::chrono::milliseconds(200);
  return make_same_host_plane(options);
}

bool becomes_readable(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, 30'000) > 0;
}

std::optional<SignedMessage> next_message(const FileDescriptor& socket) {
  if (!becomes_readable(socket.number())) return std::nullopt;
  absl::StatusOr<std::optional<SignedMessage>> message = receive_signed(socket);
  return message.ok() ? *std::move(message) : std::nullopt;
}

FileDescriptor come_to(const std::string& place) {
  absl::StatusOr<std::optional<FileDescriptor>> socket = connect_to_place(place);
  EXPECT_TRUE(socket.ok() && socket->has_value()) << socket.status();
  FileDescriptor visitor =
      socket.ok() && socket->has_value() ? **std::move(socket) : FileDescriptor();
  EXPECT_TRUE(ask_for_senders(visitor).ok());
  return visitor;
}

FileDescriptor admit_at(const FileDescriptor& listener) {
  EXPECT_TRUE(becomes_readable(listener.number()));
  absl::StatusOr<std::optional<FileDescriptor>> socket = accept_at(listener);
  EXPECT_TRUE(socket.ok() && socket->has_value()) << socket.status();
  FileDescriptor host = socket.ok() && socket->has_value() ? **std::move(socket) : FileDescriptor();
  EXPECT_TRUE(ask_for_senders(host).ok());
  return host;
}

/// Whoever is in between has the reader hold what it expects, and names the reader's own memory.
TEST(SameHostAttack, AnEchoedDigestAtANamedAddressIsNoProof) {
  for (const Role role : {Role::kOpener, Role::kAcceptor}) {
    const auto reader = plane->open({role, "reader", "attacker"});
    ASSERT_TRUE(reader->prove(challenge_with(new_challenge(), *reader)).ok());
    // What an echo method returned, say.
    const absl::StatusOr<Digest> held = digest_of(nonce_of(*reader), "attacker");
    ASSERT_TRUE(held.ok());
    // Field 1: this process. Field 2: where the digest is.
    std::string proof("\x08");
    for (auto number = static_cast<std::uint32_t>(::getpid());; number >>= 7) {
      proof.push_back(static_cast<char>((number & 0x7fU) | (number > 0x7fU ? 0x80U : 0)));
      if (number <= 0x7fU) break;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(held->data());
    proof.push_back('\x11');
    proof.append(reinterpret_cast<const char*>(&address), sizeof address);
    EXPECT_TRUE(absl::IsInvalidArgument(verify(*reader, proof)));
    const std::string secret = "what is nobody's business";
    const auto secret_address = reinterpret_cast<std::uintptr_t>(secret.data());
    std::string copy(secret.size(), ' ');
    EXPECT_FALSE(
        fetch(*reader, std::string(reinterpret_cast<const char*>(&secret_address), 8), copy).ok());
    EXPECT_NE(copy, secret);
  }
}

/// The acceptor says what the opener says, on the connection and at the meeting.
TEST(SameHostAttack, AReflectedMacIsNotTheOtherEnds) {
  const auto opener = plane->open({Role::kOpener, "hello", "hello"});
  ASSERT_TRUE(opener->prove(opener->challenge()).ok());
  const std::string place = new_challenge();
  const absl::StatusOr<FileDescriptor> listener = listen_at(place);
  ASSERT_TRUE(listener.ok()) << listener.status();
  Verdict verdict;
  opener->verify(place, verdict.on_end());
  const FileDescriptor host = admit_at(*listener);
  const std::optional<SignedMessage> first = next_message(host);
  ASSERT_TRUE(first.has_value());
  proto::SameHostGreeting greeting;
  ASSERT_TRUE(greeting.ParseFromString(first->bytes));
  ASSERT_EQ(greeting.mac().size(), kDigestBytes);
  greeting.set_answer(greeting.challenge());
  greeting.mutable_memory()->set_key(std::string(LocationSeal::kKeyBytes, 'k'));
  greeting.mutable_memory()->set_word(std::string(ShownWord::kBytes, 'w'));
  ASSERT_TRUE(send_signed(host, greeting.SerializeAsString()).ok());
  EXPECT_TRUE(absl::IsUnavailable(verdict.wait()));
  EXPECT_THAT(verdict.wait().message(), HasSubstr("not the other end"));
  EXPECT_FALSE(next_message(host).has_value()) << "it goes on talking";
}

TEST(SameHostAttack, AReflectedPlaceIsNoProof) {
  const auto acceptor = plane->open({Role::kAcceptor, "hello", "hello"});
  const auto place = acceptor->prove(acceptor->challenge());
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_TRUE(absl::IsInvalidArgument(verify(*acceptor, *place)));
}

/// Carries the nonces of one connection on to another one, so that its two victims meet. What they
/// were told of each other differs, as it does where certificates prove the names.
TEST(SameHostAttack, AThirdOneIsNotTheOtherEnd) {
  const std::unique_ptr<PullPlane> impatient = impatient_plane();
  Ends victims(*impatient, {"first victim", "attacker"}, {"second victim", "attacker"});
  EXPECT_FALSE(victims.meet().ok());
  Verdict of_second;
  victims.acceptor->verify("", of_second.on_end());
  EXPECT_TRUE(absl::IsUnavailable(of_second.wait()));
  EXPECT_THAT(of_second.wait().message(), HasSubstr("not the other end"));
}

/// Likewise, where nobody proves names, so that the victims (or one alone, with itself) do meet.
/// What they read of each other is still what they have located themselves.
TEST(SameHostAttack, WhoIsInBetweenNamesNoMemory) {
  Ends ends(*plane);
  const absl::Status met = ends.meet();
  if (is_forbidden(met)) GTEST_SKIP() << "the system forbids it: " << met;
  ASSERT_TRUE(met.ok()) << met;
  const std::string secret(4096, 's');
  const auto address = reinterpret_cast<std::uintptr_t>(secret.data());
  const std::string raw(reinterpret_cast<const char*>(&address), sizeof address);
  LocationSeal forger(std::string(LocationSeal::kKeyBytes, 'k'));
  const std::string of_less = *ends.acceptor->locate(flat(secret.substr(0, 100)));
  const std::string of_reader = *ends.opener->locate(flat(secret));
  for (const std::string& forged :
       {raw, raw + raw, *forger.seal(address, secret.size()), of_less, of_reader}) {
    std::string copy(secret.size(), ' ');
    EXPECT_TRUE(absl::IsInvalidArgument(fetch(*ends.opener, forged, copy)));
    EXPECT_EQ(copy, std::string(secret.size(), ' '));
  }
}

/// Listens to one meeting and comes to another one, of the same two, with what it has heard.
TEST(SameHostAttack, AMacIsWorthNothingOnAnotherConnection) {
  const auto first = plane->open({Role::kOpener, "dialled", "accepted"});
  ASSERT_TRUE(first->prove(challenge_with(new_challenge(), *first)).ok());
  const std::string place = new_challenge();
  const absl::StatusOr<FileDescriptor> listener = listen_at(place);
  ASSERT_TRUE(listener.ok()) << listener.status();
  Verdict verdict;
  first->verify(place, verdict.on_end());
  const std::optional<SignedMessage> heard = next_message(admit_at(*listener));
  ASSERT_TRUE(heard.has_value());

  const auto second = plane->open({Role::kAcceptor, "accepted", "dialled"});
  const auto place_of_second = second->prove(challenge_with(nonce_of(*first), *second));
  ASSERT_TRUE(place_of_second.ok());
  const FileDescriptor visitor = come_to(*place_of_second);
  ASSERT_TRUE(send_signed(visitor, heard->bytes).ok());
  EXPECT_FALSE(next_message(visitor).has_value());
}

TEST(SameHostAttack, StrangersDoNotKeepTheEndsFromMeeting) {
  Ends ends(*plane);
  ASSERT_TRUE(ends.opener->prove(ends.acceptor->challenge()).ok());
  const auto place = ends.acceptor->prove(ends.opener->challenge());
  ASSERT_TRUE(place.ok()) << place.status();
  std::vector<FileDescriptor> strangers;
  // Silent ones, and more of them than there is room for. Then one that talks too much.
  ASSERT_TRUE(eventually([&] {
    absl::StatusOr<std::optional<FileDescriptor>> stranger = connect_to_place(*place);
    EXPECT_TRUE(stranger.ok()) << stranger.status();
    if (stranger.ok() && stranger->has_value()) strangers.push_back(**std::move(stranger));
    return strangers.size() == 2 * MeetingPlace::kMaxVisitors;
  }));
  ASSERT_TRUE(send_signed(strangers.back(), std::string(4096, 'x')).ok());
  Verdict of_acceptor;
  ends.acceptor->verify("", of_acceptor.on_end());
  const absl::Status of_opener = verify(*ends.opener, *place);
  if (is_forbidden(of_opener)) GTEST_SKIP() << "the system forbids it: " << of_opener;
  EXPECT_TRUE(of_opener.ok()) << of_opener;
  EXPECT_TRUE(of_acceptor.wait().ok()) << of_acceptor.wait();
}

TEST(SameHostAttack, ASilentHostIsNotWaitedForTooLong) {
  const std::unique_ptr<PullPlane> impatient = impatient_plane();
  const auto opener = impatient->open({Role::kOpener, "dialled", "accepted"});
  ASSERT_TRUE(opener->prove(challenge_with(new_challenge(), *opener)).ok());
  const std::string place = new_challenge();
  const absl::StatusOr<FileDescriptor> listener = listen_at(place);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const absl::Status status = verify(*opener, place);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

/// The acceptor's end of a connection in a process of its own, with memory like this one's.
class Owner {
 public:
  /// `after` runs there once it has met the opener.
  explicit Owner(
      PullPlane& readers, std::function<void()> after = [] {}, bool by_another = false)
      : reader_(readers.open({Role::kOpener, "reader", "owner"})), bytes_(5000, 'x') {
    const std::string nonce = new_challenge();
    const absl::StatusOr<MeetingTerms> terms =
        MeetingTerms::make({Role::kAcceptor, "owner", "reader"}, nonce, nonce_of(*reader_),
                           {key_, word_.word(), word_.address()});
    EXPECT_TRUE(terms.ok() && reader_->prove(challenge_with(nonce, *reader_)).ok());
    process_ = std::make_unique<ListeningProcess>(
        ListeningProcess::Does{[] { return true; },
                               [&](const FileDescriptor& listener) {
                                 if (by_another && ::fork() != 0) return;
                                 ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                                 host(*terms, listener);
                                 after();
                               }});
    EXPECT_TRUE(process_->listens());
    // Here, not there.
    bytes_.assign(bytes_.size(), 'y');
  }

  absl::Status meet() { return verify(*reader_, process_->place()); }
  ListeningProcess& process() { return *process_; }

  absl::Status read(std::string& copy) {
    LocationSeal seal(key_);
    copy.assign(bytes_.size(), ' ');
    return fetch(*reader_,
                 *seal.seal(reinterpret_cast<std::uintptr_t>(bytes_.data()), bytes_.size()), copy);
  }

 private:
  static void host(const MeetingTerms& terms, const FileDescriptor& listener) {
    absl::StatusOr<Greeting> greeting = Greeting::begin(terms, admit_at(listener));
    while (greeting.ok() && becomes_readable(greeting->socket())) {
      const absl::StatusOr<std::optional<MetPeer>> met = greeting->go_on(terms);
      if (!met.ok() || met->has_value()) return;
    }
  }

  const std::string key_ = new_challenge();
  const ShownWord word_;
  std::unique_ptr<PullLink> reader_;
  std::string bytes_;
  std::unique_ptr<ListeningProcess> process_;
};

TEST(SameHostAttack, TheOneThatWasMetIsReadForAsLongAsItLives) {
  for (const PeerProcess::Source source :
       {PeerProcess::Source::kSocket, PeerProcess::Source::kNumber}) {
    SameHostOptions options;
    options.process_source = source;
    const std::unique_ptr<PullPlane> readers = make_same_host_plane(options);
    Owner owner(*readers);
    const absl::Status met = owner.meet();
    if (is_forbidden(met)) GTEST_SKIP() << "the system forbids it: " << met;
    ASSERT_TRUE(met.ok()) << met;
    std::string copy;
    ASSERT_TRUE(owner.read(copy).ok());
    EXPECT_EQ(copy, std::string(copy.size(), 'x'));
    owner.process().kill();
    EXPECT_TRUE(absl::IsUnavailable(owner.read(copy)));
  }
}

/// A process with this number and this one's memory.
pid_t twin_with(pid_t number) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<std::uintptr_t>(&number);
  arguments.set_tid_size = 1;
  const auto twin = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
  if (twin == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  return twin;
}

/// The owner dies between the meeting and the read, and another process gets its number, and even
/// has the word where the owner had it.
TEST(SameHostAttack, AnotherProcessWithTheNumberIsNotRead) {
  Owner owner(*plane);
  const absl::Status met = owner.meet();
  if (is_forbidden(met)) GTEST_SKIP() << "the system forbids it: " << met;
  ASSERT_TRUE(met.ok()) << met;
  const pid_t number = owner.process().number();
  owner.process().kill();
  const pid_t twin = twin_with(number);
  if (twin < 0) GTEST_SKIP() << "this process may not choose numbers: " << std::strerror(errno);
  ASSERT_EQ(twin, number);
  std::string copy;
  const absl::Status status = owner.read(copy);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("has ended"));
  ::kill(twin, SIGKILL);
  EXPECT_EQ(::waitpid(twin, nullptr, 0), twin);
}

/// It is the same process, and another program.
TEST(SameHostAttack, AnotherProgramInTheProcessIsNotRead) {
  std::array<int, 2> before{};
  std::array<int, 2> until_exec{};
  ASSERT_EQ(::pipe2(before.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(until_exec.data(), O_CLOEXEC), 0);
  const FileDescriptor may_exec(before[0]);
  const FileDescriptor exec_now(before[1]);
  const FileDescriptor has_execed(until_exec[0]);
  FileDescriptor open_there(until_exec[1]);
  Owner owner(*plane, [&] {
    char now = 0;
    if (::read(may_exec.number(), &now, 1) == 1) ::execl("/bin/sleep", "sleep", "600", nullptr);
  });
  ::close(open_there.release());
  const absl::Status met = owner.meet();
  if (is_forbidden(met)) GTEST_SKIP() << "the system forbids it: " << met;
  ASSERT_TRUE(met.ok()) << met;
  char none = 'x';
  ASSERT_EQ(::write(exec_now.number(), &none, 1), 1);
  ASSERT_EQ(::read(has_execed.number(), &none, 1), 0);
  std::string copy;
  const absl::Status status = owner.read(copy);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(::kill(owner.process().number(), 0), 0) << "it has ended";
}

/// Likewise, when that happens to have memory where the other one had it.
TEST(SameHostAttack, MemoryWithoutTheWordIsNotRead) {
  static const std::string there(ShownWord::kBytes, 'x');
  const ListeningProcess other({});
  const absl::StatusOr<std::optional<FileDescriptor>> socket = connect_to_place(other.place());
  ASSERT_TRUE(socket.ok() && socket->has_value()) << socket.status();
  const auto check = [&](const std::string& word) {
    absl::StatusOr<PeerProcess> process = PeerProcess::of(**socket, PeerProcess::Source::kSocket);
    if (!process.ok()) return process.status();
    const RemoteMemory memory(
        std::make_shared<const PeerProcess>(*std::move(process)),
        {new_challenge(), word, reinterpret_cast<std::uintptr_t>(there.data())},
        CopyTeam::for_this_machine());
    return memory.check();
  };
  const absl::Status same = check(there);
  if (is_forbidden(same)) GTEST_SKIP() << "the system forbids it: " << same;
  EXPECT_TRUE(same.ok()) << same;
  EXPECT_TRUE(absl::IsUnavailable(check(new_challenge())));
}

/// The kernel names who listened, and somebody else talks: a child that got the socket, or one that
/// has the number now.
TEST(SameHostAttack, WhoSpeaksIsWhoWasTakenHoldOf) {
  for (const PeerProcess::Source source :
       {PeerProcess::Source::kSocket, PeerProcess::Source::kNumber}) {
    SameHostOptions options;
    options.process_source = source;
    const std::unique_ptr<PullPlane> readers = make_same_host_plane(options);
    Owner owner(
        *readers, [] {}, true);
    const absl::Status met = owner.meet();
    EXPECT_TRUE(absl::IsUnavailable(met)) << met;
    EXPECT_THAT(met.message(), HasSubstr("not the one that speaks"));
  }
}

}  // namespace
}  // namespace sinew::internal
