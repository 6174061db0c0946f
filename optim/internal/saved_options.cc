#include "sinew/optim/internal/saved_options.h"

#include <cstring>
#include <string>
#include <vector>

#include "ATen/ops/empty.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/wire/bounded_parse.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/rpc/wire/value_reader.h"
#include "sinew/rpc/wire/value_writer.h"
#include "sinew/value.pb.h"

namespace sinew::internal {

at::Tensor write_options(const optim::Options& options) {
  EncodeContext context;
  proto::Value value;
  ValueWriter writer(value, context);
  options.model().write(writer);
  const std::string bytes = value.SerializeAsString();
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
