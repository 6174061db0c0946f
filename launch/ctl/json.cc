#include "sinew/launch/ctl/json.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/util/json_util.h"
#include "sinew/rpc/base/json_text.h"

namespace sinew::internal {
namespace {

absl::StatusOr<std::string> as_json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return text;
  return absl::InternalError("what a worker said cannot be written as JSON");
}

}  // namespace

absl::StatusOr<std::string> as_json(const JobView& job) {
  std::vector<std::string> workers;
  for (const WorkerView& view : job) {
    proto::WorkerState state = view.state;
    if (!view.answered.ok()) {
      state.mutable_worker()->set_name(view.name);
      state.mutable_worker()->set_rank(view.rank);
      state.set_address(view.address);
      state.set_membership("NO ANSWER");
    }
    absl::StatusOr<std::string> text = as_json(state);
    if (!text.ok()) return text.status();
    workers.push_back(*std::move(text));
  }
  return absl::StrCat("[", absl::StrJoin(workers, ",\n"), "]\n");
}

std::string as_json(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  for (const Finding& finding : findings) {
    std::vector<std::string> lines;
    for (const std::string& line : finding.lines) {
      lines.push_back(absl::StrCat("\"", json_text(line), "\""));
    }
    all.push_back(absl::StrCat("[", absl::StrJoin(lines, ", "), "]"));
  }
  return absl::StrCat("[", absl::StrJoin(all, ",\n"), "]\n");
}

}  // namespace sinew::internal
