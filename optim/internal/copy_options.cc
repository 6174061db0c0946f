#include "sinew/optim/internal/copy_options.h"

#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

/// Nothing when it is there.
std::optional<ErrorInfo> error_of(const RRef<optim::Options>& copy, const Peer& owner,
                                  std::string_view optimizer) {
  try {
    copy.created().wait();
    return std::nullopt;
  } catch (...) {
    ErrorInfo error = describe(std::current_exception());
    if (error.code == ErrorCode::kUnimplemented) {
      error.message = absl::StrFormat(
          "worker '%s' has no optimizer %s: its program has to serve it, sinew::serve<%s>() in its "
          "MethodTable (%s)",
          owner.info().name, optimizer, optimizer, error.message);
    }
    return error;
  }
}

}  // namespace

std::vector<std::vector<RRef<optim::Options>>> copy_options(
    const std::vector<Peer>& owners, const std::vector<optim::Options>& options) {
  std::vector<std::vector<RRef<optim::Options>>> copies(owners.size());
  for (std::size_t i = 0; i < owners.size(); ++i) {
    for (const optim::Options& one : options) {
      copies[i].push_back(one.model().copy_to(owners[i]));
    }
  }
  std::optional<ErrorInfo> first;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    for (std::size_t g = 0; g < options.size(); ++g) {
      std::optional<ErrorInfo> error = error_of(copies[i][g], owners[i], options[g].name());
      if (!first) first = std::move(error);
    }
  }
  if (first) throw RpcError(*std::move(first));
  return copies;
}

}  // namespace sinew::internal
