// Who may call which method, by what certificates prove; clients that are no workers among them.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "sinew/rpc.grpc.pb.h"
#include "sinew/standard/google/rpc/status.pb.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/cluster.h"

namespace certified {

std::atomic<int> ran{0};
int score() { return ++ran; }
int push() { return ++ran; }
int open() { return 1; }
std::vector<std::string> identities() { return sinew::CallContext::current().identities(); }
std::string caller() { return sinew::CallContext::current().caller().name; }

}  // namespace certified
SINEW_METHOD(certified::score, certified::push, certified::open, certified::identities,
             certified::caller);

namespace sinew {
namespace {

using ::testing::AllOf;
using testing::Certificates;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kClients[] = "spiffe://example.org/clients/*";

MethodTable grpc_rules_table() {
  MethodTable methods;
  methods.add<&certified::score>(allow_identity(kClients))
      .add<&certified::push>(allow("*"))
      .add<&certified::open>()
      .add<&certified::identities>()
      .add<&certified::caller>();
  return methods;
}

/// Two workers of this process, with certificates of their own where they have any.
class Certified : public ::testing::Test {
 protected:
  Certified() { certified::ran = 0; }

  void start(const std::function<Credentials(int rank)>& credentials) {
    testing::ClusterOptions options;
    options.transport = testing::ClusterTransport::kGrpc;
    options.methods = grpc_rules_table();
    options.tweak = [&](int rank, WorkerOptions& worker) {
      worker.credentials = credentials(rank);
    };
    cluster_ = std::make_unique<testing::Cluster>(std::move(options));
  }
  const Worker& worker(int rank) const { return cluster_->worker(rank); }

  TlsFiles files_of(int rank) const {
    const std::string name = absl::StrCat("worker", rank);
    return certificates_.issue(name, absl::StrCat("DNS:", name, ",IP:127.0.0.1,URI:spiffe://",
                                                  "example.org/workers/", rank));
  }

  struct Answer {
    ErrorCode code = ErrorCode::kOk;
    std::string text;
    bool did_not_run = false;
    proto::ErrorOrigin origin = proto::ORIGIN_UNKNOWN;
    std::vector<std::string> texts;
  };
  Answer call_worker1(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                      const std::string& method) const {
    const auto stub = proto::Worker::NewStub(grpc::CreateChannel(worker(1).address(), credentials));
    proto::CallRequest request;
    request.mutable_call()->set_method(method);
    proto::CallResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const grpc::Status status = stub->Call(&context, request, &response);
    Answer answer;
    answer.code = static_cast<ErrorCode>(status.error_code());
    answer.text = status.error_message();
    standard::google::rpc::Status details;
    proto::Error error;
    if (details.ParseFromString(status.error_details()) && details.details_size() == 1 &&
        error.ParseFromString(details.details(0).value())) {
      answer.did_not_run = error.execution() == proto::DID_NOT_RUN;
      answer.origin = error.origin();
    }
    for (const proto::Value& value : response.reply().value().list().items()) {
      answer.texts.push_back(value.text());
    }
    return answer;
  }

  const Certificates certificates_;

 private:
  std::unique_ptr<testing::Cluster> cluster_;
};

TEST_F(Certified, MutualTlsProvesNamesOfWorkersAndClients) {
  start([this](int rank) { return Credentials::mutual_tls(files_of(rank)); });
  // Whichever end opened the connection.
  EXPECT_THAT(worker(0).peer(1).call<&certified::identities>(),
              ElementsAre("worker0", "127.0.0.1", "spiffe://example.org/workers/0"));
  EXPECT_THAT(worker(1).peer(0).call<&certified::identities>(),
              ElementsAre("worker1", "127.0.0.1", "spiffe://example.org/workers/1"));
  EXPECT_THAT(worker(1).peer(1).call<&certified::identities>(), IsEmpty());
  EXPECT_EQ(worker(0).peer(1).call<&certified::push>(), 1);
  const RpcError refused = error_of([&] { worker(0).peer(1).call<&certified::score>(); });
  EXPECT_EQ(refused.code(), ErrorCode::kPermissionDenied);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("worker 'worker0', with a certificate for worker0"),
                    HasSubstr("may not call method 'certified::score'")));

  const auto client = [&](const std::string& name, const std::string& names) {
    return *Credentials::mutual_tls(certificates_.issue(name, names)).channel_credentials();
  };
  const auto dashboard = client("dashboard", "URI:spiffe://example.org/clients/dashboard");
  EXPECT_THAT(call_worker1(dashboard, "certified::identities").texts,
              ElementsAre("spiffe://example.org/clients/dashboard", "dashboard"));
  EXPECT_EQ(call_worker1(dashboard, "certified::score").code, ErrorCode::kOk);
  EXPECT_EQ(certified::ran, 2);

  const Answer no_worker = call_worker1(dashboard, "certified::push");
  EXPECT_EQ(no_worker.code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(no_worker.text, HasSubstr("a client with a certificate for "
                                        "spiffe://example.org/clients/dashboard, dashboard"));
  EXPECT_TRUE(no_worker.did_not_run);
  EXPECT_EQ(no_worker.origin, proto::ORIGIN_CALLEE);
  // A certificate for a worker's name makes no worker.
  const auto impostor = client("worker0", "");
  EXPECT_EQ(call_worker1(impostor, "certified::push").code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(call_worker1(impostor, "certified::score").code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(call_worker1(impostor, "certified::open").code, ErrorCode::kOk);
  EXPECT_EQ(certified::ran, 2);
}

// Callers stay anonymous, also those that this worker happens to have dialled itself.
TEST_F(Certified, OneWayTlsProvesNothingOfCallers) {
  start([this](int rank) { return Credentials::tls(files_of(rank)); });
  for (const int rank : {0, 1}) {
    EXPECT_THAT(worker(rank).peer(1 - rank).call<&certified::identities>(), IsEmpty());
    EXPECT_EQ(error_of([&] { worker(rank).peer(1 - rank).call<&certified::score>(); }).code(),
              ErrorCode::kPermissionDenied);
    EXPECT_EQ(worker(rank).peer(1 - rank).call<&certified::caller>(), worker(rank).name());
  }
}

TEST_F(Certified, InsecureClientsHaveProvedNothing) {
  start([](int) { return Credentials::insecure(); });
  const auto anybody = grpc::InsecureChannelCredentials();
  for (const char* method : {"certified::score", "certified::push"}) {
    const Answer refused = call_worker1(anybody, method);
    EXPECT_EQ(refused.code, ErrorCode::kPermissionDenied) << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("a client without a certificate"));
  }
  EXPECT_EQ(call_worker1(anybody, "certified::open").code, ErrorCode::kOk);
  EXPECT_EQ(certified::ran, 0);
}

}  // namespace
}  // namespace sinew
