// Certificates, keys and authorities are renewed in their files while workers call each other.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "sinew/rpc/transport/authority.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/temporary_folder.h"

namespace sinew {
namespace {

using internal::Authority;

class Rotation : public ::testing::Test {
 protected:
  void SetUp() override {
    issue(first_);
    write("ca.pem", first_.certificate());
    testing::ClusterOptions options;
    options.names = testing::worker_names(2);
    options.transport = testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.tweak = [this](int, WorkerOptions& worker) {
      worker.credentials = Credentials::mutual_tls(TlsFiles{folder_.file("ca.pem"),
                                                            folder_.file(worker.name + ".pem"),
                                                            folder_.file(worker.name + ".key")});
    };
    cluster_ = std::make_unique<testing::Cluster>(std::move(options));
    caller_ = std::thread([this] {
      while (!is_over_) {
        EXPECT_EQ(cluster_->worker(0).peer(1).call<&testapp::add>(calls_.load(), 1), calls_ + 1);
        ++calls_;
      }
    });
  }
  void TearDown() override {
    is_over_ = true;
    caller_.join();
    cluster_->shutdown();
  }

  void write(const std::string& name, const std::string& text) const {
    const std::string path = folder_.file(name);
    std::ofstream(path + ".new") << text;
    std::filesystem::permissions(path + ".new", std::filesystem::perms::owner_read);
    std::filesystem::rename(path + ".new", path);
  }
  void issue(const Authority& by) const {
    for (const std::string& name : testing::worker_names(2)) {
      const auto pem = by.issue({name, {"127.0.0.1"}}, 1);
      ASSERT_TRUE(pem.ok()) << pem.status();
      write(name + ".key", pem->key);
      write(name + ".pem", pem->certificate);
    }
  }
  /// Calls go on over connections that are made while the files are new, and when all ends have
  /// read them.
  void expect_calls() const {
    // The accepting side looks each second.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
    while (std::chrono::steady_clock::now() < until) {
      cluster_->break_connection("worker0", "worker1");
      const int before = calls_;
      EXPECT_TRUE(testing::eventually([&] { return calls_ > before + 10; }));
    }
  }

  const testing::TemporaryFolder folder_;
  const Authority first_ = *Authority::make("default", 2);
  const Authority second_ = *Authority::make("default", 2);
  std::unique_ptr<testing::Cluster> cluster_;
  std::atomic<bool> is_over_{false};
  std::atomic<int> calls_{0};
  std::thread caller_;
};

TEST_F(Rotation, CallsGoOnWhileEachFileIsRenewed) {
  issue(first_);
  expect_calls();
  // Another authority: first it is trusted besides, then it signs, then it is alone.
  write("ca.pem", first_.certificate() + second_.certificate());
  expect_calls();
  issue(second_);
  expect_calls();
  write("ca.pem", second_.certificate());
  expect_calls();
}

}  // namespace
}  // namespace sinew
