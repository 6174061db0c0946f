// Health checks and reflection, as the clients of gRPC's standard services see them.

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/descriptor_database.h"
#include "grpcpp/generic/generic_stub.h"
#include "sinew/standard/grpc/health/v1/health.pb.h"
#include "sinew/standard/grpc/reflection/v1alpha/reflection.pb.h"
#include "sinew/tests/transport/grpc_fixture.h"
#include "sinew/tests/transport/happening.h"

namespace sinew::internal {
namespace {

namespace health = standard::grpc::health::v1;
namespace reflection = standard::grpc::reflection::v1alpha;
using ::testing::HasSubstr;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// One call, step by step. Each step waits for its end.
class RawCall {
 public:
  RawCall(const std::string& address, const std::string& method)
      : RawCall(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()), method) {}
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    call_ = grpc::GenericStub(channel).PrepareCall(&context_, method, &queue_);
    call_->StartCall(nullptr);
    next();
  }

  template <class Message>
  bool write(const Message& message) {
    return write_bytes(message.SerializeAsString());
  }
  bool write_bytes(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return next();
  }
  template <class Message>
  bool read(Message& message) {
    grpc::ByteBuffer bytes;
    call_->Read(&bytes, nullptr);
    grpc::Slice flat;
    return next() && bytes.DumpToSingleSlice(&flat).ok() &&
           message.ParseFromArray(flat.begin(), static_cast<int>(flat.size()));
  }
  void end_writes() {
    call_->WritesDone(nullptr);
    next();
  }
  grpc::Status finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    next();
    return status;
  }

 private:
  bool next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

health::HealthCheckRequest about(const std::string& service) {
  health::HealthCheckRequest request;
  request.set_service(service);
  return request;
}

/// Takes less than a response has, unless somebody reads that.
std::shared_ptr<grpc::Channel> channel_with_little_room(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 5);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

TEST(GrpcIntrospection, CheckAnswersForTheWorkerAndItsService) {
  Worker a;
  for (const std::string service : {"", "sinew.proto.Worker"}) {
    RawCall call(a.address(), kCheck);
    ASSERT_TRUE(call.write(about(service)));
    health::HealthCheckResponse response;
    ASSERT_TRUE(call.read(response));
    EXPECT_EQ(response.status(), health::HealthCheckResponse::SERVING);
    EXPECT_TRUE(call.finish().ok());
  }
}

TEST(GrpcIntrospection, CheckKnowsNoOtherService) {
  Worker a;
  RawCall call(a.address(), kCheck);
  ASSERT_TRUE(call.write(about("other.Service")));
  const grpc::Status status = call.finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("other.Service"));
}

TEST(GrpcIntrospection, WatchTellsWhenTheWorkerShutsDown) {
  Worker a;
  RawCall known(a.address(), kWatch);
  RawCall unknown(a.address(), kWatch);
  ASSERT_TRUE(known.write(about("")));
  ASSERT_TRUE(unknown.write(about("other.Service")));
  health::HealthCheckResponse response;
  ASSERT_TRUE(known.read(response));
  EXPECT_EQ(response.status(), health::HealthCheckResponse::SERVING);
  ASSERT_TRUE(unknown.read(response));
  EXPECT_EQ(response.status(), health::HealthCheckResponse::SERVICE_UNKNOWN);
  a.transport->shutdown();
  ASSERT_TRUE(known.read(response));
  EXPECT_EQ(response.status(), health::HealthCheckResponse::NOT_SERVING);
  EXPECT_TRUE(known.finish().ok());
}

// The last answer is due while the first one waits for a client that does not read yet.
TEST(GrpcIntrospection, ShutdownMeetsAWatchWhoseFirstAnswerIsOnItsWay) {
  GrpcTransportOptions options;
  options.tuning.shutdown_grace = kPatience;
  Worker a(options);
  const auto channel = channel_with_little_room(a.address());
  RawCall watch(channel, kWatch);
  ASSERT_TRUE(watch.write(about("")));
  // One that does read tells how far the worker is. Not a new call: gRPC leaves one that arrives
  // while its server begins to shut down without an answer until the grace is over.
  RawCall reader(channel, kWatch);
  health::HealthCheckResponse response;
  ASSERT_TRUE(reader.write(about("")));
  ASSERT_TRUE(reader.read(response));
  std::thread shutdown([&] { a.transport->shutdown(); });
  EXPECT_TRUE(reader.read(response));
  EXPECT_EQ(response.status(), health::HealthCheckResponse::NOT_SERVING);
  EXPECT_TRUE(watch.read(response));
  // Two threads serve: the shutdown may come before the first answer, though it hardly does.
  if (response.status() == health::HealthCheckResponse::SERVING) {
    EXPECT_TRUE(watch.read(response));
  }
  EXPECT_EQ(response.status(), health::HealthCheckResponse::NOT_SERVING);
  EXPECT_TRUE(watch.finish().ok());
  shutdown.join();
}

TEST(GrpcIntrospection, MalformedRequestsAreRefused) {
  Worker a;
  for (const std::string method : {kCheck, kWatch, kReflection}) {
    for (const std::string& bytes : {std::string("\xff\xff\xff"), std::string(100'000, 'x')}) {
      RawCall call(a.address(), method);
      call.write_bytes(bytes);
      EXPECT_EQ(call.finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    }
  }
  RawCall silent(a.address(), kCheck);
  silent.end_writes();
  EXPECT_EQ(silent.finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(GrpcIntrospection, ReflectionAnswersEachRequestInTurn) {
  Worker a;
  RawCall call(a.address(), kReflection);
  reflection::ServerReflectionRequest request;
  reflection::ServerReflectionResponse response;

  request.set_list_services("");
  ASSERT_TRUE(call.write(request));
  ASSERT_TRUE(call.read(response));
  ASSERT_EQ(response.list_services_response().service_size(), 4);
  EXPECT_EQ(response.list_services_response().service(0).name(), "sinew.proto.Worker");

  request.set_file_containing_symbol("sinew.proto.Worker");
  ASSERT_TRUE(call.write(request));
  ASSERT_TRUE(call.read(response));
  std::set<std::string> files;
  google::protobuf::FileDescriptorProto file;
  for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
    ASSERT_TRUE(file.ParseFromString(bytes));
    EXPECT_TRUE(files.insert(file.name()).second) << file.name() << " came twice";
  }
  ASSERT_FALSE(files.empty());
  ASSERT_TRUE(file.ParseFromString(response.file_descriptor_response().file_descriptor_proto(0)));
  EXPECT_EQ(file.name(), "sinew/rpc.proto");
  ASSERT_EQ(file.service_size(), 1);
  EXPECT_EQ(file.service(0).name(), "Worker");
  // What it imports comes along.
  EXPECT_GT(file.dependency_size(), 0);
  for (const std::string& import : file.dependency()) EXPECT_EQ(files.count(import), 1) << import;

  request.set_file_by_filename("google/protobuf/descriptor.proto");
  ASSERT_TRUE(call.write(request));
  ASSERT_TRUE(call.read(response));
  EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(response.original_request().file_by_filename(), "google/protobuf/descriptor.proto");

  call.end_writes();
  EXPECT_TRUE(call.finish().ok());
}

reflection::ServerReflectionRequest services() {
  reflection::ServerReflectionRequest request;
  request.set_list_services("");
  return request;
}

/// What a tool does: it asks for a service, and builds from the answer what it needs to call it.
class Tool {
 public:
  explicit Tool(const std::string& address) : call_(address, kReflection) {}

  reflection::ServerReflectionResponse ask(const reflection::ServerReflectionRequest& request) {
    reflection::ServerReflectionResponse response;
    EXPECT_TRUE(call_.write(request));
    EXPECT_TRUE(call_.read(response));
    return response;
  }
  reflection::ServerReflectionResponse ask_for_symbol(const std::string& name) {
    reflection::ServerReflectionRequest request;
    request.set_file_containing_symbol(name);
    return ask(request);
  }
  reflection::ServerReflectionResponse ask_for_file(const std::string& name) {
    reflection::ServerReflectionRequest request;
    request.set_file_by_filename(name);
    return ask(request);
  }

 private:
  RawCall call_;
};

/// Takes the files of an answer, which may come in any order.
class AnsweredFiles : public google::protobuf::DescriptorDatabase {
 public:
  explicit AnsweredFiles(const reflection::ServerReflectionResponse& response) {
    for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      EXPECT_TRUE(file.ParseFromString(bytes));
      EXPECT_TRUE(files_.emplace(file.name(), file).second) << file.name() << " came twice";
    }
  }
  const std::map<std::string, google::protobuf::FileDescriptorProto>& files() const {
    return files_;
  }
  bool FindFileByName(const std::string& name,
                      google::protobuf::FileDescriptorProto* output) override {
    const auto found = files_.find(name);
    if (found != files_.end()) *output = found->second;
    return found != files_.end();
  }
  bool FindFileContainingSymbol(const std::string&,
                                google::protobuf::FileDescriptorProto*) override {
    return false;
  }
  bool FindFileContainingExtension(const std::string&, int,
                                   google::protobuf::FileDescriptorProto*) override {
    return false;
  }

 private:
  std::map<std::string, google::protobuf::FileDescriptorProto> files_;
};

TEST(GrpcIntrospection, ReflectionAnswersForAllThatItLists) {
  Worker a;
  Tool tool(a.address());
  const std::map<std::string, std::set<std::string>> methods = {
      {"sinew.proto.Worker", {"Exchange", "Call"}},
      {"grpc.health.v1.Health", {"Check", "Watch"}},
      {"grpc.reflection.v1.ServerReflection", {"ServerReflectionInfo"}},
      {"grpc.reflection.v1alpha.ServerReflection", {"ServerReflectionInfo"}}};
  std::set<std::string> listed;
  const reflection::ServerReflectionResponse list = tool.ask(services());
  for (const auto& service : list.list_services_response().service()) {
    SCOPED_TRACE(service.name());
    listed.insert(service.name());
    AnsweredFiles answered(tool.ask_for_symbol(service.name()));
    google::protobuf::DescriptorPool pool(&answered);
    std::set<std::string> found;
    for (const auto& [name, file] : answered.files()) {
      // Whatever an answer mentions can be asked for.
      EXPECT_FALSE(AnsweredFiles(tool.ask_for_file(name)).files().empty()) << name;
      const google::protobuf::FileDescriptor* const built = pool.FindFileByName(name);
      ASSERT_NE(built, nullptr) << name;
      for (int i = 0; i < built->service_count(); ++i) {
        const google::protobuf::ServiceDescriptor& described = *built->service(i);
        if (described.full_name() != service.name()) continue;
        for (int m = 0; m < described.method_count(); ++m) {
          found.insert(described.method(m)->name());
          const std::string& type = described.method(m)->input_type()->full_name();
          EXPECT_FALSE(AnsweredFiles(tool.ask_for_symbol(type)).files().empty()) << type;
        }
      }
    }
    const auto wanted = methods.find(service.name());
    ASSERT_NE(wanted, methods.end());
    EXPECT_EQ(found, wanted->second);
  }
  EXPECT_EQ(listed.size(), methods.size());
}

TEST(GrpcIntrospection, ReflectionKnowsNothingElse) {
  Worker a;
  Tool tool(a.address());
  // Those of Sinew that its clients have nothing to do with, too.
  for (const std::string file : {"sinew/membership.proto", "google/protobuf/descriptor.proto", "",
                                 "sinew/standard/grpc/health/v1/health.proto", "no\nsuch"}) {
    const auto response = tool.ask_for_file(file);
    EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::NOT_FOUND) << file;
  }
  reflection::ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("sinew.proto.Call");
  const auto known = tool.ask(request);
  EXPECT_EQ(known.all_extension_numbers_response().base_type_name(), "sinew.proto.Call");
  request.set_all_extension_numbers_of_type("sinew.proto.Nothing");
  EXPECT_EQ(tool.ask(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  request.mutable_file_containing_extension()->set_containing_type("sinew.proto.Call");
  EXPECT_EQ(tool.ask(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  request.clear_file_containing_extension();
  EXPECT_EQ(tool.ask(request).error_response().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST(GrpcIntrospection, AReflectionStreamWithoutRequestsEnds) {
  GrpcTransportOptions options;
  options.tuning.unary_transfer_timeout = std::chrono::seconds(2);
  Worker a(options);
  RawCall call(a.address(), kReflection);
  reflection::ServerReflectionResponse response;
  ASSERT_TRUE(call.write(services()));
  ASSERT_TRUE(call.read(response));
  const grpc::Status status = call.finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("no request arrived in time"));
}

TEST(GrpcIntrospection, AnAnswerThatIsNotTakenEndsTheCall) {
  for (const std::string method : {kReflection, kWatch}) {
    Happening ended;
    GrpcTransportOptions options;
    options.tuning.unary_transfer_timeout = std::chrono::seconds(2);
    options.log = [&ended](const std::string& line) {
      EXPECT_THAT(line, HasSubstr("its result was not taken in time"));
      ended.notify();
    };
    Worker a(options);
    RawCall call(channel_with_little_room(a.address()), method);
    ASSERT_TRUE(call.write(services()));
    ASSERT_TRUE(ended.wait()) << method;
    reflection::ServerReflectionResponse response;
    EXPECT_FALSE(call.read(response)) << method;
    EXPECT_EQ(call.finish().error_code(), grpc::StatusCode::CANCELLED) << method;
  }
}

// A later request may be as large as the first one.
TEST(GrpcIntrospection, LaterRequestsOfAReflectionStreamWaitForTheirTurnToo) {
  std::atomic<bool> any_ended{false};
  GrpcTransportOptions options;
  options.tuning.unary_transfer_timeout = std::chrono::seconds(1);
  options.log = [&any_ended](const std::string&) { any_ended = true; };
  Worker a(options);
  reflection::ServerReflectionResponse response;
  const auto answered = [&](RawCall& stream) {
    return stream.write(services()) && stream.read(response);
  };
  std::list<RawCall> streams;
  // As many as one address has turns.
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(answered(streams.emplace_back(a.address(), kReflection)));
  // It may end with them, since its time began soon after theirs.
  answered(streams.emplace_back(a.address(), kReflection));
  EXPECT_TRUE(any_ended) << "nobody's turn was over";
  EXPECT_TRUE(answered(streams.emplace_back(a.address(), kReflection)));
}

TEST(GrpcIntrospection, AMethodThatNobodyHasIsNamed) {
  Worker a;
  RawCall call(a.address(), "/sinew.proto.Worker/Dance");
  const grpc::Status status = call.finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("Dance"));
}

}  // namespace
}  // namespace sinew::internal
