#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "sinew/rpc/rpc.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rref/rref.h"
#include "sinew/streams/stream.h"
#include "sinew/testing/error_of.h"
#include "sinew/testing/eventually.h"
#include "sinew/testing/leftovers.h"
#include "sinew/tests/support/temporary_folder.h"

namespace sinew::testing {

enum class StreamTransport { kInproc, kGrpc };

/// A test with workers worker0, worker1, ... that have references and streams, and no other layer:
/// so these tests wait for no other layer to be compiled. It ends with a graceful shutdown that
/// fails the test when something is left.
class StreamWorkersTest : public ::testing::TestWithParam<StreamTransport> {
 protected:
  void TearDown() override { finish(); }

  void start(int size, const MethodTable& methods,
             const std::function<void(int rank, WorkerOptions& options)>& tweak = nullptr) {
    const auto network = std::make_shared<internal::InprocNetwork>();
    workers_.resize(static_cast<std::size_t>(size));
    for_each([&](int rank, Worker& worker) {
      WorkerOptions options;
      options.name = "worker" + std::to_string(rank);
      options.methods = methods;
      options.rank = rank;
      options.world_size = size;
      options.num_threads = 4;
      options.lease = std::chrono::minutes(2);
      if (GetParam() == StreamTransport::kGrpc) {
        options.init_method = "file://" + folder_.file("meet");
      } else {
        options.init_method = "inproc://streams";
        options.network = network;
      }
      if (tweak) tweak(rank, options);
      worker = init_rpc(std::move(options));
    });
  }
  const Worker& worker(int rank) const { return workers_[static_cast<std::size_t>(rank)]; }
  std::int64_t written(int rank) const { return worker(rank).counters().at("streams.written"); }

  void finish() {
    if (workers_.empty()) return;
    for (const Worker& each : workers_) {
      // Streams say things to each other without waiting: asked once more, it may be busy.
      std::vector<std::string> left;
      EXPECT_TRUE(eventually([&] { return (left = leftovers(each)).empty(); }))
          << absl::StrJoin(left, "\n");
    }
    ShutdownOptions options;
    options.timeout = kPatience;
    options.fail_on_leaks = true;
    for_each([&](int, Worker& worker) { worker.shutdown(options); });
    workers_.clear();
  }
  /// Ends the workers without grace, and asserts nothing.
  void abandon() {
    for (const Worker& each : workers_) each.shutdown({false});
    workers_.clear();
  }

 private:
  void for_each(const std::function<void(int rank, Worker& worker)>& run) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      threads.emplace_back([&run, this, i] {
        try {
          run(static_cast<int>(i), workers_[i]);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      });
    }
    for (std::thread& each : threads) each.join();
  }

  const TemporaryFolder folder_;
  std::vector<Worker> workers_;
};

// ThreadSanitizer knows nothing of the packaged gRPC's synchronisation.
#ifdef __SANITIZE_THREAD__
#define SINEW_INSTANTIATE_STREAM_TEST(Suite)                                              \
  INSTANTIATE_TEST_SUITE_P(Over, Suite,                                                   \
                           ::testing::Values(::sinew::testing::StreamTransport::kInproc), \
                           [](const auto&) { return std::string("Inproc"); })
#else
#define SINEW_INSTANTIATE_STREAM_TEST(Suite)                                                   \
  INSTANTIATE_TEST_SUITE_P(                                                                    \
      Over, Suite,                                                                             \
      ::testing::Values(::sinew::testing::StreamTransport::kInproc,                            \
                        ::sinew::testing::StreamTransport::kGrpc),                             \
      [](const auto& each) {                                                                   \
        return std::string(each.param == ::sinew::testing::StreamTransport::kInproc ? "Inproc" \
                                                                                    : "Grpc"); \
      })
#endif

}  // namespace sinew::testing
