#include "sinew/rpc/transport/grpc/server/reflection_call.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "sinew/introspection.pb.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/transport/grpc/server/service_names.h"

namespace sinew::internal {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

void add_file(const FileDescriptor& file, absl::flat_hash_set<const FileDescriptor*>& added,
              proto::ReflectionFiles& files) {
  if (!added.insert(&file).second) return;
  google::protobuf::FileDescriptorProto description;
  file.CopyTo(&description);
  files.add_file_descriptor_proto(description.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) add_file(*file.dependency(i), added, files);
}

/// `file` may be null: `what` was not found. The program's other protos are nobody's business.
void answer_file(const FileDescriptor* file, const std::string& what,
                 proto::ReflectionResponse& response) {
  if (file == nullptr || !absl::StartsWith(file->package(), "sinew.")) {
    proto::ReflectionError& error = *response.mutable_error_response();
    error.set_error_code(static_cast<int>(absl::StatusCode::kNotFound));
    error.set_error_message(absl::StrCat("nothing is known about \"", printable(what), "\""));
    return;
  }
  absl::flat_hash_set<const FileDescriptor*> added;
  add_file(*file, added, *response.mutable_file_descriptor_response());
}

void answer(const proto::ReflectionRequest& request, proto::ReflectionResponse& response) {
  // By way of a message, so that the descriptors are linked.
  const DescriptorPool& pool = *proto::CallRequest::descriptor()->file()->pool();
  switch (request.message_request_case()) {
    case proto::ReflectionRequest::kListServices:
      for (const char* name : {kWorkerService, kHealthService, kReflectionService}) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case proto::ReflectionRequest::kFileByFilename:
      answer_file(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(),
                  response);
      return;
    case proto::ReflectionRequest::kFileContainingSymbol:
      answer_file(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                  request.file_containing_symbol(), response);
      return;
    case proto::ReflectionRequest::kFileContainingExtension:
      answer_file(nullptr, request.file_containing_extension().containing_type(), response);
      return;
    case proto::ReflectionRequest::kAllExtensionNumbersOfType:
      answer_file(nullptr, request.all_extension_numbers_of_type(), response);
      return;
    case proto::ReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  proto::ReflectionError& error = *response.mutable_error_response();
  error.set_error_code(static_cast<int>(absl::StatusCode::kUnimplemented));
  error.set_error_message("a request of a kind that is not known here");
}

}  // namespace

void ReflectionCall::start(const std::shared_ptr<ForeignCalls>& calls,
                           std::unique_ptr<ServerCall> call) {
  ForeignCall::start(std::shared_ptr<ReflectionCall>(new ReflectionCall(calls, std::move(call))));
}

void ReflectionCall::on_message(const grpc::ByteBuffer& message) {
  proto::ReflectionRequest request;
  if (absl::Status status = parse_message(message, request); !status.ok()) {
    finish(status);
    return;
  }
  proto::ReflectionResponse response;
  response.set_valid_host(request.host());
  answer(request, response);
  *response.mutable_original_request() = std::move(request);
  write(serialize_message(response));
}

}  // namespace sinew::internal
