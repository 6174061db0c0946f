// What a client that is no worker sees of a call: its status, its time, its metadata, and the list
// of methods.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "sinew/rpc.grpc.pb.h"
#include "sinew/standard/google/rpc/status.pb.h"
#include "sinew/testing/gate.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"

using sinew::CallContext;
using sinew::Future;
using sinew::Promise;
using sinew::testing::Cluster;
using sinew::testing::eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using namespace std::chrono_literals;

namespace clients {

/// "key=value" of everything that the client said, but for what its library says by itself.
std::string metadata() {
  CallContext::Metadata metadata = CallContext::current().metadata();
  metadata.erase("user-agent");
  return absl::StrJoin(metadata, " ", absl::PairFormatter("="));
}
/// The same, where the call goes on when another one has been answered.
Future<std::string> metadata_later() {
  return sinew::current_worker().peer(0).async<&testapp::add>(1, 2).then(
      [](int) { return metadata(); });
}

std::atomic<int> begun{0};
std::atomic<int> given_up{0};
/// Ends when its caller gives it up.
Future<int> until_cancelled() {
  const Promise<int> promise;
  ++begun;
  CallContext::current().cancellation().notify([promise] {
    ++given_up;
    promise.try_set_value(1);
  });
  return promise.future();
}

sinew::testing::Gate gate;
/// Holds its thread.
int blocked() {
  gate.pass();
  return 0;
}

void fail_at_length(std::int64_t bytes, const std::string& character) {
  std::string text;
  while (static_cast<std::int64_t>(text.size()) < bytes) text += character;
  throw std::out_of_range(text);
}

}  // namespace clients

SINEW_METHOD(clients::metadata, clients::metadata_later, clients::until_cancelled, clients::blocked,
             clients::fail_at_length);

namespace {

enum class Lists { kNo, kYes };

constexpr int kThreads = 2;

/// One worker, and a client of it.
class GrpcClients : public ::testing::Test {
 protected:
  void start(Lists lists = Lists::kNo) {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(1);
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods.add<&testapp::add>().add<&clients::metadata>().add<&clients::metadata_later>();
    options.methods.add<&clients::until_cancelled>().add<&clients::fail_at_length>();
    options.methods.add<&clients::blocked>(sinew::allow("worker0"));
    options.methods.serve<testapp::Counter>().add<&testapp::Counter::add>();
    options.methods.add<&testapp::Counter::get>(sinew::allow("trainer"));
    // Not listed for those who may not call it.
    options.methods.add<&testapp::echo>(sinew::allow("trainer"));
    options.tweak = [lists](int, sinew::WorkerOptions& worker) {
      worker.list_methods = lists == Lists::kYes;
      worker.num_threads = kThreads;
    };
    cluster_ = std::make_unique<Cluster>(std::move(options));
    stub_ = sinew::proto::Worker::NewStub(
        grpc::CreateChannel(cluster_->worker(0).address(), grpc::InsecureChannelCredentials()));
  }
  void TearDown() override {
    EXPECT_THAT(cluster_->try_shutdown(), IsEmpty());
    EXPECT_EQ(clients::given_up.exchange(0), clients::begun.exchange(0));
  }

  static sinew::proto::CallRequest request(const std::string& method) {
    sinew::proto::CallRequest request;
    request.mutable_call()->set_method(method);
    return request;
  }
  grpc::Status call(const sinew::proto::CallRequest& request) {
    grpc::ClientContext context;
    return call(context, request);
  }
  grpc::Status call(grpc::ClientContext& context, const sinew::proto::CallRequest& request) {
    if (context.deadline() == std::chrono::system_clock::time_point::max()) {
      context.set_deadline(std::chrono::system_clock::now() + 60s);
    }
    return stub_->Call(&context, request, &response_);
  }
  const sinew::proto::Value& value() const { return response_.reply().value(); }

  /// The error in the details of a status, whose code and text they repeat.
  static sinew::proto::Error error_in(const grpc::Status& status) {
    sinew::proto::Error error;
    sinew::standard::google::rpc::Status details;
    EXPECT_TRUE(details.ParseFromString(status.error_details()));
    EXPECT_EQ(details.code(), status.error_code());
    EXPECT_EQ(details.message(), status.error_message());
    if (details.details_size() != 1) {
      ADD_FAILURE() << details.details_size() << " details of " << status.error_message();
      return error;
    }
    EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/sinew.proto.Error");
    EXPECT_TRUE(error.ParseFromString(details.details(0).value()));
    EXPECT_EQ(error.code(), status.error_code());
    EXPECT_EQ(error.message(), "");
    return error;
  }

  /// A call that its time ends, with as much of that as this machine needs to begin it. It is given
  /// up.
  static grpc::Status call_until_it_has_begun(
      const std::function<grpc::Status(std::chrono::microseconds time)>& call) {
    grpc::Status status;
    for (auto time = 20ms; clients::begun == 0 && time < 60s; time *= 2) status = call(time);
    EXPECT_GT(clients::begun, 0);
    EXPECT_TRUE(eventually([] { return clients::given_up == clients::begun; }));
    return status;
  }

  const sinew::Worker& worker() const { return cluster_->worker(0); }

 private:
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<sinew::proto::Worker::Stub> stub_;
  sinew::proto::CallResponse response_;
};

TEST_F(GrpcClients, AValueIsTheResponse) {
  start();
  sinew::proto::CallRequest add = request("testapp::add");
  add.mutable_call()->add_arguments()->set_integer(2);
  add.mutable_call()->add_arguments()->set_integer(3);
  ASSERT_TRUE(call(add).ok());
  EXPECT_EQ(value().integer(), 5);
}

TEST_F(GrpcClients, AnErrorOfTheMethodIsTheStatus) {
  start();
  sinew::proto::CallRequest fail = request("clients::fail_at_length");
  fail.mutable_call()->add_arguments()->set_integer(3);
  fail.mutable_call()->add_arguments()->set_text("oh!");
  const grpc::Status status = call(fail);
  EXPECT_EQ(status.error_code(), grpc::OUT_OF_RANGE);
  EXPECT_THAT(status.error_message(), HasSubstr("clients::fail_at_length"));
  EXPECT_THAT(status.error_message(), HasSubstr("std::out_of_range: oh!"));
  const sinew::proto::Error error = error_in(status);
  EXPECT_EQ(error.execution(), sinew::proto::MAY_HAVE_RUN);
  EXPECT_EQ(error.type_name(), "std::out_of_range");
  EXPECT_EQ(error.remote_message(), "oh!");
}

TEST_F(GrpcClients, MethodsOfPublishedObjectsAreCalledByName) {
  start();
  worker().publish("five", std::make_shared<testapp::Counter>(5));
  sinew::proto::CallRequest add = request("testapp::Counter::add");
  add.mutable_call()->set_object("five");
  add.mutable_call()->add_arguments()->set_integer(2);
  ASSERT_TRUE(call(add).ok());
  EXPECT_EQ(value().integer(), 7);

  sinew::proto::CallRequest get = request("testapp::Counter::get");
  get.mutable_call()->set_object("five");
  EXPECT_EQ(call(get).error_code(), grpc::PERMISSION_DENIED) << "rules hold as for functions";

  worker().publish("seven", sinew::make_rref(7));
  sinew::proto::CallRequest fetch = request("sinew.fetch");
  fetch.mutable_call()->set_object("seven");
  const grpc::Status refused = call(fetch);
  EXPECT_EQ(refused.error_code(), grpc::PERMISSION_DENIED) << "no rule says who may";
  EXPECT_EQ(error_in(refused).execution(), sinew::proto::DID_NOT_RUN);
  worker().unpublish("seven");

  worker().unpublish("five");
  const grpc::Status gone = call(add);
  EXPECT_EQ(gone.error_code(), grpc::NOT_FOUND);
  EXPECT_THAT(gone.error_message(), HasSubstr("nothing is published as 'five'"));
  EXPECT_EQ(error_in(gone).execution(), sinew::proto::DID_NOT_RUN);
}

// gRPC's clients drop calls whose trailers are over 8 KiB. What is not ASCII takes three times as
// much there.
TEST_F(GrpcClients, LongTextsAreCutToWhatTheTrailersTake) {
  start();
  for (const std::string character : {"x", "\u00e9", "\u6f22", "\n"}) {
    for (const std::int64_t bytes : {1000, 1030, 2000, 5000, 100000}) {
      SCOPED_TRACE(absl::StrCat(bytes, " bytes of ", character));
      sinew::proto::CallRequest fail = request("clients::fail_at_length");
      fail.mutable_call()->add_arguments()->set_integer(bytes);
      fail.mutable_call()->add_arguments()->set_text(character);
      const grpc::Status status = call(fail);
      ASSERT_EQ(status.error_code(), grpc::OUT_OF_RANGE) << status.error_message();
      const sinew::proto::Error error = error_in(status);
      EXPECT_EQ(error.type_name(), "std::out_of_range");
      EXPECT_GE(error.remote_message().size(), 900U);
      const bool is_cut = absl::StrContains(error.remote_message(), "bytes in all)");
      EXPECT_EQ(is_cut, static_cast<std::int64_t>(error.remote_message().size()) < bytes);
    }
  }
}

TEST_F(GrpcClients, WhatIsRefusedDidNotRun) {
  start();
  sinew::proto::CallRequest targeted = request("testapp::add");
  targeted.mutable_call()->mutable_target()->mutable_rref()->set_serial(1);
  sinew::proto::CallRequest late = request("testapp::add");
  late.mutable_call()->set_signature("()->text");
  const std::map<grpc::StatusCode, sinew::proto::CallRequest> refused = {
      {grpc::UNIMPLEMENTED, request("testapp::missing")},
      {grpc::PERMISSION_DENIED, targeted},
      {grpc::INVALID_ARGUMENT, late}};
  for (const auto& [code, request] : refused) {
    const grpc::Status status = call(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_EQ(error_in(status).execution(), sinew::proto::DID_NOT_RUN) << status.error_message();
  }
}

TEST_F(GrpcClients, TheTimeThatACallGivesItselfCounts) {
  start();
  const grpc::Status status = call_until_it_has_begun([this](std::chrono::microseconds time) {
    sinew::proto::CallRequest brief = request("clients::until_cancelled");
    brief.mutable_call()->set_timeout_us(static_cast<std::uint64_t>(time.count()));
    return call(brief);
  });
  EXPECT_EQ(status.error_code(), grpc::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("clients::until_cancelled"));
  EXPECT_THAT(status.error_message(), HasSubstr("Call.timeout_us"));
  EXPECT_EQ(error_in(status).execution(), sinew::proto::MAY_HAVE_RUN);
}

TEST_F(GrpcClients, TheEarlierOfTwoTimesCounts) {
  start();
  const grpc::Status status = call_until_it_has_begun([this](std::chrono::microseconds time) {
    sinew::proto::CallRequest patient = request("clients::until_cancelled");
    patient.mutable_call()->set_timeout_us(std::uint64_t{24} * 3600 * 1'000'000);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + time);
    return call(context, patient);
  });
  EXPECT_EQ(status.error_code(), grpc::DEADLINE_EXCEEDED);
}

TEST_F(GrpcClients, ACallThatNoThreadComesToIsRefusedBeforeItsTimeIsOver) {
  constexpr auto kTime = 4s;
  // Where the machine has stood still for the last sixteenth of it, another one is asked.
  constexpr int kTries = 5;
  start();
  clients::gate.close();
  std::vector<Future<int>> running;
  for (int i = 0; i < kThreads; ++i) {
    running.push_back(worker().self().async<&clients::blocked>());
  }
  EXPECT_TRUE(clients::gate.wait_for_arrivals(kThreads));
  for (const bool is_its_own_time : {false, true}) {
    grpc::Status status;
    for (int i = 0; i < kTries && status.error_details().empty(); ++i) {
      sinew::proto::CallRequest late = request("clients::metadata");
      grpc::ClientContext context;
      if (is_its_own_time) {
        late.mutable_call()->set_timeout_us(std::chrono::microseconds(kTime).count());
      } else {
        context.set_deadline(std::chrono::system_clock::now() + kTime);
      }
      status = call(context, late);
      EXPECT_EQ(status.error_code(), grpc::DEADLINE_EXCEEDED) << status.error_message();
    }
    EXPECT_THAT(status.error_message(), HasSubstr("queued behind 2 handlers"));
    EXPECT_EQ(error_in(status).execution(), sinew::proto::DID_NOT_RUN);
  }
  clients::gate.open();
  for (const Future<int>& each : running) EXPECT_EQ(each.wait(), 0);
}

TEST_F(GrpcClients, TimesBeyondMeasureAreNone) {
  start();
  for (const std::uint64_t time : {std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0} / 2000}) {
    sinew::proto::CallRequest add = request("testapp::add");
    add.mutable_call()->set_timeout_us(time);
    add.mutable_call()->add_arguments()->set_integer(2);
    add.mutable_call()->add_arguments()->set_integer(3);
    EXPECT_TRUE(call(add).ok()) << time;
  }
}

TEST_F(GrpcClients, MetadataReachesTheHandler) {
  start();
  for (const std::string method : {"clients::metadata", "clients::metadata_later"}) {
    grpc::ClientContext context;
    context.AddMetadata("trace", "7");
    context.AddMetadata("who", "a b");
    context.AddMetadata("who", "c");
    context.AddMetadata("key-bin", std::string("\0\xff\n", 3));
    ASSERT_TRUE(call(context, request(method)).ok()) << method;
    // It is no text.
    EXPECT_EQ(value().binary(), std::string("key-bin=\0\xff\n trace=7 who=a b who=c", 33))
        << method;
  }
}

TEST_F(GrpcClients, HugeMetadataIsRefused) {
  start();
  grpc::ClientContext context;
  context.AddMetadata("large", std::string(20'000, 'x'));
  EXPECT_EQ(call(context, request("clients::metadata")).error_code(), grpc::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcClients, TheMethodsAreListedWhereTheWorkerSaysSo) {
  start(Lists::kYes);
  ASSERT_TRUE(call(request("sinew.methods")).ok());
  std::map<std::string, std::string> listed;
  for (int i = 0; i < value().map().keys_size(); ++i) {
    listed[value().map().keys(i).text()] = value().map().values(i).text();
  }
  EXPECT_THAT(listed,
              UnorderedElementsAre(Pair("testapp::add", "(integer,integer)->integer"),
                                   Pair("testapp::Counter", "(integer)->kept"),
                                   Pair("testapp::Counter::add", "(integer)->integer"),
                                   Pair("clients::metadata", "()->text"),
                                   Pair("clients::metadata_later", "()->text"),
                                   Pair("clients::until_cancelled", "()->integer"),
                                   Pair("clients::fail_at_length", "(integer,text)->null")));
}

TEST_F(GrpcClients, TheMethodsAreNotListedOtherwise) {
  start(Lists::kNo);
  const grpc::Status status = call(request("sinew.methods"));
  EXPECT_EQ(status.error_code(), grpc::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("WorkerOptions::list_methods"));
  EXPECT_EQ(error_in(status).execution(), sinew::proto::DID_NOT_RUN);
}

}  // namespace
