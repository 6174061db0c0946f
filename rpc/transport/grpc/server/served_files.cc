#include "sinew/rpc/transport/grpc/server/served_files.h"

#include <memory>
#include <utility>

#include "absl/strings/str_replace.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/text_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/transport/grpc/server/service_names.h"
#include "sinew/standard/grpc/health/v1/health.pb.h"
#include "sinew/standard/grpc/reflection/v1alpha/reflection.pb.h"

namespace sinew::internal {
namespace {

using google::protobuf::DescriptorPool;
using ProtoFile = google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using Renaming = std::vector<std::pair<const char*, const char*>>;

// Names stand in many places of a file, and nothing else of it looks like them.
FileDescriptorProto renamed(const ProtoFile& file, const Renaming& names) {
  FileDescriptorProto description;
  file.CopyTo(&description);
  std::string text;
  google::protobuf::TextFormat::PrintToString(description, &text);
  google::protobuf::TextFormat::ParseFromString(absl::StrReplaceAll(text, names), &description);
  return description;
}

void add(const ProtoFile& file, const Renaming& names, DescriptorPool& pool) {
  for (int i = 0; i < file.dependency_count(); ++i) {
    const ProtoFile& import = *file.dependency(i);
    if (pool.FindFileByName(import.name()) == nullptr) add(import, {}, pool);
  }
  pool.BuildFile(renamed(file, names));
}

std::unique_ptr<const DescriptorPool> make_files() {
  auto pool = std::make_unique<DescriptorPool>();
  add(*proto::CallRequest::descriptor()->file(), {}, *pool);
  const Renaming standard = {{"sinew.standard.", ""}, {"sinew/standard/", ""}};
  add(*standard::grpc::health::v1::HealthCheckRequest::descriptor()->file(), standard, *pool);
  const ProtoFile& reflection =
      *standard::grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file();
  add(reflection, standard, *pool);
  Renaming v1 = standard;
  v1.emplace_back("v1alpha", "v1");
  add(reflection, v1, *pool);
  return pool;
}

}  // namespace

const std::vector<std::string>& served_services() {
  static const auto& names = *new std::vector<std::string>{
      kWorkerService, kHealthService, kReflectionService, kReflectionAlphaService};
  return names;
}

const DescriptorPool& served_files() {
  static const DescriptorPool& files = *make_files().release();
  return files;
}

}  // namespace sinew::internal
