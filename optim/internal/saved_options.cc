#include "sinew/optim/internal/saved_options.h"

#include <array>
#include <charconv>
#include <cstring>
#include <string>
#include <vector>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/wire/bounded_parse.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/rpc/wire/value_reader.h"
#include "sinew/rpc/wire/value_writer.h"
#include "sinew/value.pb.h"

namespace sinew::internal {
namespace {

proto::Value value_of(const optim::Options& options) {
  EncodeContext context;
  proto::Value value;
  ValueWriter writer(value, context);
  options.model().write(writer);
  return value;
}

/// With all of its digits.
std::string text_of(double number) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
}

std::string text_of(const proto::Value& value) {
  const auto join = [](const auto& items) {
    return absl::StrJoin(items, ", ", [](std::string* out, const auto& item) {
      absl::StrAppend(out, text_of(item));
    });
  };
  switch (value.kind_case()) {
    case proto::Value::kBoolean:
      return value.boolean() ? "true" : "false";
    case proto::Value::kReal:
      return text_of(value.real());
    case proto::Value::kReals:
      return absl::StrCat("(", join(value.reals().items()), ")");
    case proto::Value::kList:
      return absl::StrCat("(", join(value.list().items()), ")");
    default:
      return value.ShortDebugString();
  }
}

}  // namespace

std::string text_of(const optim::Options& options) {
  return absl::StrCat(std::string(options.name()), " with lr ", text_of(options.learning_rate()),
                      " ", text_of(value_of(options)));
}

at::Tensor write_options(const optim::Options& options) {
  const std::string bytes = value_of(options).SerializeAsString();
  const at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

optim::Options options_after_load(const optim::Options& now, const at::Tensor& saved) {
  const at::Tensor bytes = saved.contiguous();
  proto::Value value;
  const absl::Status parsed =
      parse_bounded(std::string(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()), value);
  if (!parsed.ok()) throw_error(parsed);
  DecodeContext context(std::vector<absl::Cord>{});
  const ValueReader reader(value, context, {nullptr, "option", 0});
  optim::Options options(now.model().read(reader));
  options.check();
  try {
    options.model().check_change(now.model());
    return options;
  } catch (const RpcError&) {
    optim::Options own = now;
    own.set_learning_rate(options.learning_rate());
    return own;
  }
}

}  // namespace sinew::internal
