#include "sinew/rpc/transport/grpc/server/reflection_call.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/transport/grpc/server/served_files.h"
#include "sinew/standard/grpc/reflection/v1alpha/reflection.pb.h"

namespace sinew::internal {
namespace {

namespace reflection = standard::grpc::reflection::v1alpha;
using ProtoFile = google::protobuf::FileDescriptor;

void add_file(const ProtoFile& file, absl::flat_hash_set<const ProtoFile*>& added,
              reflection::FileDescriptorResponse& files) {
  if (!added.insert(&file).second) return;
  google::protobuf::FileDescriptorProto description;
  file.CopyTo(&description);
  files.add_file_descriptor_proto(description.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) add_file(*file.dependency(i), added, files);
}

void answer_unknown(const std::string& what, reflection::ServerReflectionResponse& response) {
  reflection::ErrorResponse& error = *response.mutable_error_response();
  error.set_error_code(static_cast<int>(absl::StatusCode::kNotFound));
  error.set_error_message(absl::StrCat("nothing is known about \"", printable(what), "\""));
}

/// `file` may be null: `what` was not found.
void answer_file(const ProtoFile* file, const std::string& what,
                 reflection::ServerReflectionResponse& response) {
  if (file == nullptr) return answer_unknown(what, response);
  absl::flat_hash_set<const ProtoFile*> added;
  add_file(*file, added, *response.mutable_file_descriptor_response());
}

void answer(const reflection::ServerReflectionRequest& request,
            reflection::ServerReflectionResponse& response) {
  switch (request.message_request_case()) {
    case reflection::ServerReflectionRequest::kListServices:
      for (const std::string& name : served_services()) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case reflection::ServerReflectionRequest::kFileByFilename:
      return answer_file(served_files().FindFileByName(request.file_by_filename()),
                         request.file_by_filename(), response);
    case reflection::ServerReflectionRequest::kFileContainingSymbol:
      return answer_file(served_files().FindFileContainingSymbol(request.file_containing_symbol()),
                         request.file_containing_symbol(), response);
    case reflection::ServerReflectionRequest::kFileContainingExtension:
      // None of them has any.
      return answer_unknown(request.file_containing_extension().containing_type(), response);
    case reflection::ServerReflectionRequest::kAllExtensionNumbersOfType: {
      const std::string& type = request.all_extension_numbers_of_type();
      if (served_files().FindMessageTypeByName(type) == nullptr) {
        return answer_unknown(type, response);
      }
      response.mutable_all_extension_numbers_response()->set_base_type_name(type);
      return;
    }
    case reflection::ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  reflection::ErrorResponse& error = *response.mutable_error_response();
  error.set_error_code(static_cast<int>(absl::StatusCode::kUnimplemented));
  error.set_error_message("a request of a kind that is not known here");
}

}  // namespace

void ReflectionCall::start(const std::shared_ptr<ForeignCalls>& calls,
                           std::unique_ptr<ServerCall> call) {
  ForeignCall::start(std::shared_ptr<ReflectionCall>(new ReflectionCall(calls, std::move(call))));
}

void ReflectionCall::on_message(const grpc::ByteBuffer& message) {
  reflection::ServerReflectionRequest request;
  if (absl::Status status = parse_message(message, request); !status.ok()) {
    finish(status);
    return;
  }
  reflection::ServerReflectionResponse response;
  response.set_valid_host(request.host());
  answer(request, response);
  *response.mutable_original_request() = std::move(request);
  write(serialize_message(response));
}

}  // namespace sinew::internal
