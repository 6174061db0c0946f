// Stores of all kinds do the same.

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/groups/internal/socket.h"
#include "sinew/groups/internal/store_frames.h"
#include "sinew/groups/internal/store_table.h"
#include "sinew/groups/internal/tcp_store_server.h"
#include "sinew/groups/store.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/groups/ranks.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using namespace std::chrono_literals;
using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Store;
using sinew::testing::error_of;
using sinew::testing::run_ranks;
using sinew::testing::TemporaryFolder;
using ::testing::HasSubstr;

namespace {

/// Two handles on one store, as two processes would have them.
struct Kind {
  std::string name;
  std::function<std::pair<Store, Store>(const TemporaryFolder&)> open;
};

std::pair<Store, Store> open_tcp() {
  const Store server = Store::tcp("127.0.0.1:0", Store::TcpRole::kServer);
  return {server, Store::tcp(absl::StrCat("127.0.0.1:", server.port()), Store::TcpRole::kClient)};
}

class StoreTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { std::tie(first_, second_) = GetParam().open(folder_); }

  const TemporaryFolder folder_;
  Store first_;
  Store second_;
};

TEST_P(StoreTest, WhatOneSetsTheOtherGets) {
  const std::string value("a\0b\xff\n", 5);
  first_.set("key", value);
  EXPECT_EQ(second_.get("key"), value);
  second_.set("key", "");
  EXPECT_EQ(first_.get("key"), "");
  first_.set(std::string(Store::kMaxKeyBytes, 'k'), "long");
  EXPECT_EQ(second_.get(std::string(Store::kMaxKeyBytes, 'k')), "long");
}

TEST_P(StoreTest, GetAndWaitBlockUntilKeysAreThere) {
  std::thread other([&] {
    second_.set("b", "2");
    second_.set("a", "1");
  });
  first_.wait({"a", "b"});
  EXPECT_EQ(first_.get("a"), "1");
  other.join();
  std::thread later([&] { second_.set("c", "3"); });
  EXPECT_EQ(first_.get("c"), "3");
  later.join();
  first_.wait({});
}

TEST_P(StoreTest, ATimeoutNamesTheKeysThatAreMissing) {
  first_.set("there", "");
  const RpcError get = error_of([&] { second_.get("missing", {50ms}); });
  EXPECT_EQ(get.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(get.message(), HasSubstr("lacks the key 'missing'"));
  const RpcError wait = error_of([&] { second_.wait({"there", "x", "y"}, {50ms}); });
  EXPECT_EQ(wait.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(wait.message(), HasSubstr("lacks the keys 'x', 'y'"));
  // Of the store itself.
  const RpcError own = error_of([&] { second_.within(50ms).get("missing"); });
  EXPECT_EQ(own.code(), ErrorCode::kDeadlineExceeded);
  // It can be used afterwards.
  EXPECT_EQ(second_.get("there"), "");
}

TEST_P(StoreTest, SumsOfManyAreExact) {
  run_ranks(4, [&](int rank) {
    const Store& store = rank % 2 == 0 ? first_ : second_;
    for (int step = 0; step < 25; ++step) store.add("sum", 2);
  });
  EXPECT_EQ(first_.add("sum", 0), 200);
  EXPECT_EQ(first_.add("sum", -300), -100);
  EXPECT_EQ(second_.get("sum"), "-100");
  second_.set("word", "x");
  EXPECT_EQ(error_of([&] { first_.add("word", 1); }).code(), ErrorCode::kInvalidArgument);
  second_.set("given", "41");
  EXPECT_EQ(first_.add("given", 1), 42);
}

TEST_P(StoreTest, CompareSet) {
  EXPECT_EQ(first_.compare_set("key", "other", "new"), "other");
  EXPECT_FALSE(first_.check({"key"}));
  EXPECT_EQ(first_.compare_set("key", "", "one"), "one");
  EXPECT_EQ(second_.compare_set("key", "", "two"), "one");
  EXPECT_EQ(second_.compare_set("key", "one", "two"), "two");
  EXPECT_EQ(first_.get("key"), "two");
}

TEST_P(StoreTest, CheckAndDelete) {
  first_.set("a", "1");
  EXPECT_TRUE(second_.check({"a"}));
  EXPECT_FALSE(second_.check({"a", "b"}));
  EXPECT_TRUE(second_.check({}));
  EXPECT_TRUE(second_.delete_key("a"));
  EXPECT_FALSE(first_.delete_key("a"));
  EXPECT_FALSE(first_.check({"a"}));
  const std::int64_t before = first_.num_keys();
  first_.set("n", "");
  EXPECT_EQ(second_.num_keys(), before + 1);
}

TEST_P(StoreTest, PrefixesKeepKeysApart) {
  const Store left = first_.with_prefix("left/");
  const Store right = second_.with_prefix("right/");
  left.set("key", "l");
  right.set("key", "r");
  EXPECT_EQ(left.get("key"), "l");
  EXPECT_EQ(first_.get("right/key"), "r");
  EXPECT_EQ(second_.with_prefix("left").with_prefix("/").get("key"), "l");
}

TEST_P(StoreTest, WhatMakesNoSenseIsRefused) {
  const auto code = [](const std::function<void()>& f) { return error_of(f).code(); };
  EXPECT_EQ(code([&] { first_.set("", "x"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { first_.get(std::string(Store::kMaxKeyBytes + 1, 'k')); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { first_.set("k", std::string(Store::kMaxValueBytes + 1, 'v')); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { first_.get("k", {0ms}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { first_.within(-1s); }), ErrorCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest,
                         ::testing::Values(Kind{"Memory",
                                                [](const TemporaryFolder&) {
                                                  const Store store = Store::in_memory();
                                                  return std::pair(store, store);
                                                }},
                                           Kind{"File",
                                                [](const TemporaryFolder& folder) {
                                                  return std::pair(
                                                      Store::file(folder.file("store"), 2),
                                                      Store::file(folder.file("store"), 2));
                                                }},
                                           Kind{"Tcp",
                                                [](const TemporaryFolder&) { return open_tcp(); }}),
                         [](const auto& kind) { return kind.param.name; });

TEST(StoreKinds, AnEmptyHandleSaysSo) {
  EXPECT_EQ(error_of([] { Store().get("k"); }).code(), ErrorCode::kFailedPrecondition);
}

TEST(StoreKinds, TheLastUserRemovesTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("store");
  Store first = Store::file(path, 2);
  Store second = Store::file(path, 2);
  first.set("key", "value");
  first = Store();
  EXPECT_EQ(second.get("key"), "value");
  second = Store();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(StoreKinds, AFileThatOthersCanWriteIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("store");
  std::ofstream(path).put('x');
  std::filesystem::permissions(path, std::filesystem::perms::all);
  EXPECT_EQ(error_of([&] { Store::file(path); }).code(), ErrorCode::kPermissionDenied);
  EXPECT_EQ(error_of([] { Store::file("relative"); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { Store::file(folder.file("")); }).code(), ErrorCode::kInvalidArgument);
}

TEST(StoreKinds, OneServerAtAPort) {
  const Store server = Store::tcp("127.0.0.1:0", Store::TcpRole::kServer);
  const std::string address = absl::StrCat("127.0.0.1:", server.port());
  EXPECT_EQ(error_of([&] { Store::tcp(address, Store::TcpRole::kServer); }).code(),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(error_of([&] { Store::tcp(address, Store::TcpRole::kSharedServer); }).code(),
            ErrorCode::kAlreadyExists);
  const int port = sinew::testing::free_port();
  const std::string free = absl::StrCat("127.0.0.1:", port);
  const Store one = Store::tcp(free, Store::TcpRole::kSharedServer);
  const Store two = Store::tcp(free, Store::TcpRole::kSharedServer);
  one.set("key", "value");
  EXPECT_EQ(two.get("key"), "value");
}

TEST(StoreKinds, ATcpStoreStaysOnThisMachineUnlessToldOtherwise) {
  for (const auto role : {Store::TcpRole::kServer, Store::TcpRole::kClient}) {
    const RpcError error = error_of([&] { Store::tcp("10.1.2.3:1", role); });
    EXPECT_EQ(error.code(), ErrorCode::kPermissionDenied);
    EXPECT_THAT(error.message(), HasSubstr("neither encrypts nor authenticates"));
  }
  EXPECT_EQ(error_of([] { Store::tcp("nonsense", Store::TcpRole::kServer); }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(StoreKinds, AClientThatComesFirstWaitsForTheServer) {
  const std::string address = absl::StrCat("127.0.0.1:", sinew::testing::free_port());
  std::thread client([&] { Store::tcp(address, Store::TcpRole::kClient).set("key", "value"); });
  const Store server = Store::tcp(address, Store::TcpRole::kServer);
  EXPECT_EQ(server.get("key"), "value");
  client.join();
  const std::string nobody = absl::StrCat("127.0.0.1:", sinew::testing::free_port());
  const auto begin = std::chrono::steady_clock::now();
  const RpcError error = error_of(
      [&] { Store::tcp(nobody, Store::TcpRole::kClient, Store::TcpReach::kLoopbackOnly, 300ms); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(StoreKinds, WaitersFailWithTheServer) {
  auto [server, client] = open_tcp();
  std::thread waiter([client = client] {
    EXPECT_EQ(error_of([&] { client.get("never"); }).code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error_of([&] { client.set("k", "v"); }).code(), ErrorCode::kUnavailable);
  });
  server.set("warm", "");
  server = Store();
  waiter.join();
}

// One connection serves all threads of a client.
TEST(StoreKinds, OneThreadsWaitDoesNotHoldUpTheOthers) {
  const auto [server, client] = open_tcp();
  std::thread waiter([&] { EXPECT_EQ(client.get("late"), "now"); });
  for (int step = 0; step < 100; ++step) client.add("steps", 1);
  client.set("late", "now");
  waiter.join();
  EXPECT_EQ(server.get("steps"), "100");
}

TEST(StoreKinds, TheLargestValuesAreComparedAndReadByManyAtOnce) {
  const auto [server, client] = open_tcp();
  const std::string before(Store::kMaxValueBytes, 'b');
  const std::string after(Store::kMaxValueBytes, 'a');
  EXPECT_EQ(client.compare_set("key", "", before), before);
  EXPECT_EQ(client.compare_set("key", before, after), after);
  EXPECT_EQ(error_of([&, &store = client] { store.compare_set("key", after + "a", ""); }).code(),
            ErrorCode::kInvalidArgument);
  // More than is kept for a client that does not read.
  run_ranks(12, [&, &store = client](int) { EXPECT_EQ(store.get("key"), after); });
}

TEST(StoreKinds, TooManyKeysAtOnceAreRefusedAndHarmNothing) {
  const auto [server, client] = open_tcp();
  std::vector<std::string> keys;
  for (int number = 0; number < 10'000; ++number) {
    keys.push_back(absl::StrCat(number, std::string(Store::kMaxKeyBytes - 10, 'k')));
  }
  const RpcError error = error_of([&, &store = client] { store.check(keys); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("10000 keys"));
  client.set("key", "value");
  EXPECT_EQ(server.get("key"), "value");
}

constexpr auto kPatience = 60s;

/// A connection whose bytes are made by hand.
class Stranger {
 public:
  enum class Manner { kGreets, kIsSilent };
  explicit Stranger(sinew::internal::Socket socket, Manner manner = Manner::kGreets)
      : socket_(std::move(socket)) {
    if (manner == Manner::kGreets) send(sinew::internal::greeting_frame());
  }
  static Stranger at(const std::string& address, Manner manner = Manner::kGreets) {
    auto socket =
        sinew::internal::connect_to(address, sinew::internal::Clock::system().now() + kPatience);
    EXPECT_TRUE(socket.ok()) << socket.status();
    return Stranger(*std::move(socket), manner);
  }

  void send(const sinew::proto::StoreFrame& frame) {
    EXPECT_TRUE(sinew::internal::send_all(socket_, sinew::internal::seal_frame(frame),
                                          sinew::internal::Clock::system().now() + kPatience)
                    .ok());
  }
  /// The next frame.
  sinew::proto::StoreFrame next() {
    for (;;) {
      auto frame = reader_.next(sinew::internal::kMaxStoreFrameBytes);
      if (frame.ok() && frame->has_value()) return **frame;
      std::array<char, 1000> buffer;
      const auto ready = sinew::internal::wait_readable(
          socket_, sinew::internal::Clock::system().now() + kPatience);
      const ssize_t some =
          ready.ok() && *ready ? recv(socket_.fd(), buffer.data(), buffer.size(), 0) : 0;
      if (!frame.ok() || some <= 0) throw std::runtime_error("there is no frame");
      reader_.append(buffer.data(), static_cast<std::size_t>(some));
    }
  }
  void reply(const sinew::proto::StoreFrame& request, std::int64_t number) {
    sinew::proto::StoreFrame answer;
    answer.set_id(request.id());
    answer.mutable_reply()->set_number(number);
    send(answer);
  }
  /// How many bytes come, up to that many; fewer: it was hung up.
  std::size_t receive(std::size_t count) {
    std::vector<char> buffer(1 << 20);
    std::size_t received = 0;
    while (received < count) {
      const auto ready = sinew::internal::wait_readable(
          socket_, sinew::internal::Clock::system().now() + kPatience);
      if (!ready.ok() || !*ready) break;
      const ssize_t some = recv(socket_.fd(), buffer.data(), buffer.size(), 0);
      if (some <= 0) break;
      received += static_cast<std::size_t>(some);
    }
    return received;
  }

 private:
  sinew::internal::Socket socket_;
  sinew::internal::FrameReader reader_;
};

// As one whose process was stopped, or swaps.
TEST(StoreKinds, AServerThatIsSilentForAWhileIsAskedAgain) {
  const auto listener = sinew::internal::listen_at("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto opening = std::async(std::launch::async, [&] {
    return Store::tcp(absl::StrCat("127.0.0.1:", sinew::internal::port_of(*listener)),
                      Store::TcpRole::kClient);
  });
  ASSERT_TRUE(
      sinew::internal::wait_readable(*listener, sinew::internal::Clock::system().now() + kPatience)
          .value());
  Stranger server(
      sinew::internal::Socket(accept4(listener->fd(), nullptr, nullptr, SOCK_NONBLOCK)));
  EXPECT_TRUE(server.next().has_greeting());
  const Store client = opening.get();
  const RpcError error = error_of([&] { client.check({"first"}, {1ms}); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error.message(), HasSubstr("does not answer"));
  const auto late = server.next();

  auto asked = std::async(std::launch::async, [&] { return client.check({"second"}, {60s}); });
  const auto second = server.next();
  server.reply(late, 0);
  server.reply(second, 1);
  EXPECT_TRUE(asked.get());
  // Once.
  server.reply(late, 0);
  EXPECT_EQ(error_of([&] { client.check({"third"}, {60s}); }).code(), ErrorCode::kUnavailable);
}

TEST(StoreKinds, WhoConnectsAndSaysNothingIsHungUpOn) {
  const auto server = sinew::internal::TcpStoreServer::start("127.0.0.1:0", 2s);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = absl::StrCat("127.0.0.1:", (*server)->port());
  Stranger polite = Stranger::at(address);
  Stranger silent = Stranger::at(address, Stranger::Manner::kIsSilent);
  const std::size_t greeting =
      sinew::internal::seal_frame(sinew::internal::greeting_frame()).size();
  // Its greeting, and the end.
  EXPECT_EQ(silent.receive(greeting + 1), greeting);
  // The one before may stay.
  sinew::proto::StoreFrame frame;
  frame.set_id(1);
  frame.mutable_request()->set_kind(sinew::proto::StoreRequest::COUNT_KEYS);
  polite.send(frame);
  EXPECT_GT(polite.receive(greeting + 1), greeting);
}

// A store keeps so many waits and no more.
TEST(StoreKinds, WaitsOfClientsThatHaveVanishedAreForgotten) {
  constexpr std::size_t kWaits = 4000;
  const std::size_t clients = sinew::internal::StoreTable::Limits().max_waiters / kWaits + 2;
  const Store server = Store::tcp("127.0.0.1:0", Store::TcpRole::kServer);
  const std::string address = absl::StrCat("127.0.0.1:", server.port());
  for (std::size_t client = 0; client < clients; ++client) {
    Stranger gone = Stranger::at(address);
    for (std::size_t number = 1; number <= kWaits; ++number) {
      sinew::proto::StoreFrame frame;
      frame.set_id(number);
      frame.mutable_request()->set_kind(sinew::proto::StoreRequest::WAIT);
      frame.mutable_request()->add_keys("never");
      frame.mutable_request()->set_timeout_ms(3'600'000);
      gone.send(frame);
    }
    // All have come when something behind them is answered.
    sinew::proto::StoreFrame last;
    last.set_id(kWaits + 1);
    last.mutable_request()->set_kind(sinew::proto::StoreRequest::COUNT_KEYS);
    gone.send(last);
    const std::size_t greeting =
        sinew::internal::seal_frame(sinew::internal::greeting_frame()).size();
    ASSERT_GT(gone.receive(greeting + 1), greeting) << client;
  }
  // There is room for another one, which waits until its time is over.
  const Store store = Store::tcp(address, Store::TcpRole::kClient);
  EXPECT_EQ(error_of([&] { store.wait({"never"}, {20ms}); }).code(), ErrorCode::kDeadlineExceeded);
}

// All at once they would be more than the server keeps.
TEST(StoreKinds, AClientThatReadsLateIsServedAsItReads) {
  constexpr std::size_t kRequests = 36;
  const Store server = Store::tcp("127.0.0.1:0", Store::TcpRole::kServer);
  const std::string address = absl::StrCat("127.0.0.1:", server.port());
  server.set("key", std::string(Store::kMaxValueBytes, 'v'));
  Stranger late = Stranger::at(address);
  for (std::size_t number = 1; number <= kRequests; ++number) {
    sinew::proto::StoreFrame frame;
    frame.set_id(number);
    frame.mutable_request()->set_kind(sinew::proto::StoreRequest::GET);
    frame.mutable_request()->add_keys("key");
    late.send(frame);
  }
  // Others do not notice.
  Store::tcp(address, Store::TcpRole::kClient).set("other", "served");
  EXPECT_EQ(server.get("other"), "served");
  EXPECT_GE(late.receive(kRequests * Store::kMaxValueBytes), kRequests * Store::kMaxValueBytes);
}

TEST(StoreKinds, AServerThatAnswersWhatWasNotAskedIsLeft) {
  const std::string address = absl::StrCat("127.0.0.1:", sinew::testing::free_port());
  const auto listener = sinew::internal::listen_at(address);
  ASSERT_TRUE(listener.ok());
  std::thread client([&] {
    const Store store = Store::tcp(address, Store::TcpRole::kClient);
    const RpcError error = error_of([&] { store.get("key"); });
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.message(), HasSubstr("answers what was not asked"));
  });
  ASSERT_TRUE(*sinew::internal::wait_readable(*listener,
                                              sinew::internal::Clock::system().now() + kPatience));
  Stranger liar(sinew::internal::Socket(accept(listener->fd(), nullptr, nullptr)));
  // The client's greeting, and more: it asks.
  liar.receive(sinew::internal::seal_frame(sinew::internal::greeting_frame()).size() + 1);
  sinew::proto::StoreFrame frame;
  frame.set_id(77);
  frame.mutable_reply()->set_value("surprise");
  liar.send(frame);
  client.join();
}

}  // namespace
