// Bytes of HTTP/2, or of TLS around it, are damaged on their way between workers, a thousand times.
// Calls end, well or not; with TLS none has a wrong result; and when the bytes are whole again all
// goes on.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "sinew/tests/integration/secured_test.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/mutate.h"
#include "sinew/tests/support/tcp_proxy.h"

using sinew::Worker;
using sinew::testing::SplitMix64;
using sinew::testing::TcpProxy;
using namespace std::chrono_literals;

namespace {

// With and without TLS.
constexpr int kDamaged = 500;
constexpr int kDamagedInARound = 50;
// Of what comes at once, one in so many is damaged.
constexpr std::uint64_t kOneIn = 8;
constexpr auto kTimeout = 5s;

/// Workers 1 to 3 reach each other through proxies alone, whichever of two opens a connection.
class Damage : public sinew::testing::SecuredTest {
 protected:
  static constexpr int kFirst = 1;
  static constexpr int kLast = 3;

  void start() {
    proxies_.clear();
    cluster_.reset();
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(kLast + 1);
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.tweak = [this](int rank, sinew::WorkerOptions& worker) {
      worker.credentials = credentials(worker.name);
      worker.same_host = false;
      if (rank >= kFirst) worker.advertise_address = TcpProxy::kHost;
    };
    cluster_ = std::make_unique<sinew::testing::Cluster>(std::move(options));
    for (int rank = kFirst; rank <= kLast; ++rank) {
      const std::string address = cluster_->worker(rank).address();
      int port = 0;
      ASSERT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
      proxies_.push_back(std::make_unique<TcpProxy>(port));
    }
  }
  void damage(const std::function<bool(std::string& bytes)>& change) {
    for (const auto& proxy : proxies_) proxy->damage(change);
  }
  int damaged() const {
    int sum = 0;
    for (const auto& proxy : proxies_) sum += proxy->damaged();
    return sum;
  }

  bool change(std::string& bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (random_.below(kOneIn) != 0) return false;
    std::string changed = sinew::testing::mutate({bytes}, random_);
    if (changed == bytes) return false;
    bytes = std::move(changed);
    return true;
  }

  static int callee_of(int rank) { return rank == kLast ? kFirst : rank + 1; }
  enum class Results { kAny, kRight };
  /// One call after the other, until enough is damaged.
  void call(int rank, int until, Results results) {
    const Worker& worker = cluster_->worker(rank);
    const std::string text(static_cast<std::size_t>(rank) * 1000, static_cast<char>('a' + rank));
    sinew::CallOptions options;
    options.timeout = kTimeout;
    while (damaged() < until && worker.peer(callee_of(rank)).alive()) {
      const auto begun = std::chrono::steady_clock::now();
      try {
        const std::string result =
            worker.peer(callee_of(rank)).with(options).call<&testapp::echo>(text);
        EXPECT_TRUE(results == Results::kAny || result == text) << result;
      } catch (const sinew::RpcError&) {
        // With a reason that is not looked at: the bytes may say anything.
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begun, 10 * kTimeout);
    }
  }
  bool all_alive() const {
    for (int rank = 0; rank <= kLast; ++rank) {
      const std::vector<sinew::WorkerInfo> alive = cluster_->worker(rank).workers();
      if (alive.size() != kLast + 1) return false;
    }
    return true;
  }

  std::mutex mutex_;
  SplitMix64 random_{20261130};
  std::unique_ptr<sinew::testing::Cluster> cluster_;
  std::vector<std::unique_ptr<TcpProxy>> proxies_;
};
SINEW_INSTANTIATE_SECURED_TEST(Damage);

TEST_P(Damage, NobodyCrashesHangsOrIsToldWrong) {
  start();
  for (int done = 0; done < kDamaged;) {
    // What TLS does not vouch for may say that somebody has left.
    if (!proves_names() && !all_alive()) start();
    const int before = damaged();
    damage([this](std::string& bytes) { return change(bytes); });
    std::vector<std::thread> callers;
    for (int rank = kFirst; rank <= kLast; ++rank) {
      callers.emplace_back([this, rank, until = before + kDamagedInARound] {
        call(rank, until, proves_names() ? Results::kRight : Results::kAny);
      });
    }
    for (std::thread& each : callers) each.join();
    damage(nullptr);
    done += damaged() - before;
    if (!proves_names() && !all_alive()) continue;
    for (int rank = kFirst; rank <= kLast; ++rank) {
      EXPECT_EQ(cluster_->worker(rank).peer(callee_of(rank)).call<&testapp::add>(rank, 1),
                rank + 1);
    }
  }
  if (proves_names()) cluster_->shutdown();
}

}  // namespace
