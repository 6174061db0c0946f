#include "sinew/testing/error_of.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "sinew/testing/failure.h"

namespace sinew::testing {

RpcError error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const RpcError& error) {
    return error;
  } catch (const std::exception& error) {
    throw Failure(absl::StrCat("an RpcError should have been thrown, not: ", error.what()));
  }
  throw Failure("an RpcError should have been thrown, and nothing was");
}

}  // namespace sinew::testing
