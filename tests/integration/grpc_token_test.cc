// A job with a token, as whoever does not know it sees it.

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "sinew/groups/process_group.h"
#include "sinew/rpc.grpc.pb.h"
#include "sinew/rpc/transport/authority.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/raw_asker.h"
#include "sinew/tests/support/raw_peer.h"
#include "sinew/tests/support/temporary_folder.h"

namespace secretive {

std::string metadata() {
  std::string keys;
  for (const auto& [key, value] : sinew::CallContext::current().metadata()) keys += key + " ";
  return keys;
}

}  // namespace secretive
SINEW_METHOD(secretive::metadata);

namespace sinew {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "a token of this job";
std::string token() { return "0123456789abcdef0123456789abcdef"; }

class WithToken : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::ClusterOptions options;
    options.names = testing::worker_names(2);
    options.transport = testing::ClusterTransport::kGrpc;
    options.methods = testapp::methods();
    options.methods.add<&secretive::metadata>();
    options.tweak = [](int, WorkerOptions& worker) { worker.job_token = token(); };
    cluster_ = std::make_unique<testing::Cluster>(std::move(options));
  }
  void TearDown() override { cluster_->shutdown(); }

  std::string address() const { return cluster_->worker(0).address(); }
  grpc::Status call(const std::string& authorization, std::string* result = nullptr) {
    const auto stub =
        proto::Worker::NewStub(grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    proto::CallRequest request;
    request.mutable_call()->set_method("secretive::metadata");
    proto::CallResponse response;
    const grpc::Status status = stub->Call(&context, request, &response);
    if (result != nullptr) *result = response.reply().value().text();
    return status;
  }
  /// What a method of the standard services ends with.
  grpc::Status standard(const std::string& method) {
    grpc::GenericStub stub(grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const grpc::Slice nothing;
    const auto call =
        stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&nothing, 1), &queue);
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return status;
  }

  std::unique_ptr<testing::Cluster> cluster_;
};

TEST_F(WithToken, MembersCallEachOther) {
  EXPECT_EQ(cluster_->worker(1).peer(0).call<&testapp::add>(1, 2), 3);
}

TEST_F(WithToken, WhoDoesNotKnowItOpensNoConnection) {
  for (const std::string& known : {std::string(), token() + "0"}) {
    testing::RawPeer stranger({"stranger", -1, {}});
    stranger.set_peer(cluster_->worker(0).info());
    stranger.set_token(known);
    const absl::Status refused = stranger.connect(address());
    EXPECT_EQ(stranger.refused_as(), proto::NOT_ALLOWED) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("does not know the token of this job"));
    EXPECT_THAT(std::string(refused.message()), Not(HasSubstr(token())));
    // It is not told who answers, either.
    EXPECT_FALSE(stranger.ask(address()).ok());
    EXPECT_EQ(stranger.refused_as(), proto::NOT_ALLOWED);
    testing::RawAsker asker({"asker", -1, {}});
    asker.set_token(known);
    EXPECT_THAT(std::string(asker.open(address()).message()), HasSubstr("does not know the token"));
  }
  testing::RawPeer guest({"guest", -1, {}});
  guest.set_token(token());
  EXPECT_TRUE(guest.connect(address()).ok());
}

TEST_F(WithToken, AWorkerThatDoesNotKnowItDoesNotJoin) {
  const auto join = [this](const std::string& known) {
    WorkerOptions late;
    late.name = "late";
    late.init_method = "tcp://" + address();
    late.found_job = FoundJob::kNever;
    late.job_token = known;
    late.join_timeout = std::chrono::seconds(60);
    return testing::error_of([&] { init_rpc(late); });
  };
  for (const std::string& known : {std::string(), token() + "0"}) {
    const RpcError error = join(known);
    EXPECT_THAT(error.message(), HasSubstr("does not know the token of this job: give all"))
        << error.message();
  }
}

TEST_F(WithToken, ClientsBringIt) {
  for (const std::string& wrong :
       {std::string(), "Bearer " + token() + "0", token(), "Basic " + token()}) {
    const grpc::Status refused = call(wrong);
    EXPECT_EQ(refused.error_code(), grpc::UNAUTHENTICATED) << refused.error_message();
    EXPECT_THAT(refused.error_message(), HasSubstr("authorization: Bearer TOKEN"));
    EXPECT_THAT(refused.error_message(), Not(HasSubstr(token())));
  }
  std::string keys;
  const grpc::Status called = call("Bearer " + token(), &keys);
  EXPECT_TRUE(called.ok()) << called.error_message();
  // Methods do not see it.
  EXPECT_THAT(keys, HasSubstr("user-agent"));
  EXPECT_THAT(keys, Not(HasSubstr("authorization")));
}

TEST_F(WithToken, OfTheStandardServicesHealthIsForEverybody) {
  EXPECT_TRUE(standard("/grpc.health.v1.Health/Check").ok());
  for (const char* version : {"v1", "v1alpha"}) {
    const grpc::Status status = standard(
        absl::StrCat("/grpc.reflection.", version, ".ServerReflection/ServerReflectionInfo"));
    EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << status.error_message();
  }
}

TEST(Tokens, AWorkerTakesNoneThatIsNone) {
  WorkerOptions options;
  options.name = "alone";
  options.init_method = "inproc://nowhere";
  options.job_token = kToken;
  const RpcError error = testing::error_of([&] { init_rpc(options); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("WorkerOptions::job_token has no token of a job"));
  EXPECT_THAT(error.message(), Not(HasSubstr(kToken)));
}

// Who has a token does not tell its calls to somebody without one that answers in a worker's place.
TEST(Tokens, AWorkerWithoutOneIsNotTalkedTo) {
  const testing::TemporaryFolder folder;
  WorkerOptions open;
  open.name = "open";
  open.init_method = "file://" + folder.file("open");
  open.found_job = FoundJob::kAlways;
  const Worker worker = init_rpc(open);
  WorkerOptions secret = open;
  secret.name = "secret";
  secret.found_job = FoundJob::kNever;
  secret.job_token = token();
  const RpcError error = testing::error_of([&] { init_rpc(secret); });
  EXPECT_THAT(error.message(), HasSubstr("has a token of its job, and worker 'open' has none"));
  worker.shutdown();
}

// ---- TLS by the token.

WorkerOptions by_token(const std::string& name, const std::string& known,
                       const std::string& place) {
  WorkerOptions options;
  options.name = name;
  options.methods = testapp::methods();
  options.init_method = place;
  options.job_token = known;
  options.credentials = Credentials::job_tls();
  options.encrypted_only = true;
  return options;
}

TEST(JobTls, WorkersThatKnowTheTokenCallEachOther) {
  const testing::TemporaryFolder folder;
  const std::string place = "file://" + folder.file("job");
  WorkerOptions first = by_token("first", token(), place);
  first.found_job = FoundJob::kAlways;
  const Worker worker = init_rpc(first);
  WorkerOptions second = by_token("second", token(), place);
  const Worker other = init_rpc(second);
  EXPECT_EQ(other.peer("first").call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(worker.peer("second").call<&testapp::add>(1, 2), 3);
  // Also over the address of the rendezvous.
  WorkerOptions third = by_token("third", token(), "tcp://" + worker.address());
  third.found_job = FoundJob::kNever;
  const Worker late = init_rpc(third);
  EXPECT_EQ(late.peer("second").call<&testapp::add>(1, 2), 3);

  WorkerOptions stranger = by_token("stranger", token() + "0", place);
  stranger.found_job = FoundJob::kNever;
  stranger.join_timeout = std::chrono::seconds(3);
  EXPECT_THAT(testing::error_of([&] { init_rpc(stranger); }).message(),
              HasSubstr("is not signed by our authority"));
  // Nor is anybody heard in the clear.
  testing::RawPeer clear({"clear", -1, {}});
  clear.set_peer(worker.info());
  clear.set_token(token());
  EXPECT_FALSE(clear.connect(worker.address()).ok());
  ShutdownOptions at_once;
  at_once.graceful = false;
  for (const Worker& each : {late, other, worker}) each.shutdown(at_once);
}

TEST(JobTls, NeedsAToken) {
  WorkerOptions options = by_token("alone", "", "inproc://nowhere");
  const RpcError error = testing::error_of([&] { init_rpc(options); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("has Credentials::job_tls(), and no token: set"));
}

// An operator may have one authority for several jobs.
TEST(JobTls, ACertificateOfAnotherJobIsRefused) {
  const auto ours = internal::Authority::make("ours", 1);
  const auto theirs = internal::Authority::make("theirs", 1);
  const testing::TemporaryFolder folder;
  const auto options = [&](const std::string& name, const internal::Authority& by) {
    const auto pem = by.issue({name, {"127.0.0.1"}}, 1);
    WorkerOptions worker;
    worker.name = name;
    worker.job = "ours";
    worker.init_method = "file://" + folder.file("job");
    worker.join_timeout = std::chrono::seconds(3);
    worker.credentials = Credentials::mutual_tls(
        TlsPem{ours->certificate() + theirs->certificate(), pem->certificate, pem->key});
    return worker;
  };
  const char* const refused = "a certificate is for sinew:job/theirs, and this is the job 'ours'";
  {
    const Worker worker = init_rpc(options("first", *ours));
    EXPECT_THAT(testing::error_of([&] { init_rpc(options("second", *theirs)); }).message(),
                HasSubstr(refused));
    worker.shutdown();
  }
  // Whoever calls looks at who answers, too.
  const Worker worker = init_rpc(options("third", *theirs));
  EXPECT_THAT(testing::error_of([&] { init_rpc(options("fourth", *ours)); }).message(),
              HasSubstr(refused));
  worker.shutdown();
}

TEST(EncryptedOnly, WhatWouldSendInTheClearDoesNotStart) {
  const testing::TemporaryFolder folder;
  WorkerOptions options;
  options.name = "alone";
  options.init_method = "file://" + folder.file("job");
  options.encrypted_only = true;
  const RpcError error = testing::error_of([&] { init_rpc(options); });
  EXPECT_EQ(error.code(), ErrorCode::kPermissionDenied);
  EXPECT_THAT(error.message(), HasSubstr("and its credentials do not use TLS"));

  options.credentials = Credentials::job_tls();
  options.job_token = token();
  WorkerOptions with_nccl = options;
  with_nccl.nccl_allow_unencrypted = true;
  EXPECT_THAT(testing::error_of([&] { init_rpc(with_nccl); }).message(),
              HasSubstr("and its nccl_allow_unencrypted is set"));
  WorkerOptions at_etcd = options;
  at_etcd.init_method = "etcd://127.0.0.1:1/job";
  EXPECT_THAT(testing::error_of([&] { init_rpc(at_etcd); }).message(),
              HasSubstr("etcd would be asked in the clear"));
}

TEST(EncryptedOnly, GroupsDoNotStart) {
  const testing::TemporaryFolder folder;
  WorkerOptions options = by_token("alone", token(), "file://" + folder.file("job"));
  options.rank = 0;
  options.world_size = 1;
  const Worker worker = init_rpc(options);
  GroupOptions group;
  group.worker = worker;
  group.allow_unencrypted = true;
  const RpcError over_worker = testing::error_of([&] { init_process_group(group); });
  EXPECT_EQ(over_worker.code(), ErrorCode::kPermissionDenied);
  EXPECT_THAT(over_worker.message(), HasSubstr("process groups do not encrypt"));
  worker.shutdown();
  // Without a worker the environment says it.
  ::setenv("SINEW_ENCRYPTED_ONLY", "1", 1);
  group.worker.reset();
  group.init_method = "file://" + folder.file("group");
  group.rank = 0;
  group.world_size = 1;
  EXPECT_EQ(testing::error_of([&] { init_process_group(group); }).code(),
            ErrorCode::kPermissionDenied);
  ::setenv("SINEW_ENCRYPTED_ONLY", "yes", 1);
  EXPECT_THAT(testing::error_of([&] { init_process_group(group); }).message(),
              HasSubstr("SINEW_ENCRYPTED_ONLY is 'yes': 1, 0 or nothing is meant"));
  ::unsetenv("SINEW_ENCRYPTED_ONLY");
}

}  // namespace
}  // namespace sinew
