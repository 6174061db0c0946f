#include "sinew/rpc/base/gone.h"

namespace sinew::internal {

const char* to_text(Gone why) {
  switch (why) {
    case Gone::kUnknown:
      return "it left or was lost";
    case Gone::kLeft:
      return "it has left";
    case Gone::kProcessEnded:
      return "its process has ended";
    case Gone::kSilent:
      return "the registrar has not heard it for a lease";
    case Gone::kNotReturned:
      return "it did not come back to the registrar, which was started again, within a lease";
    case Gone::kReplaced:
      return "its name or rank is another worker's";
    case Gone::kOtherJob:
      return "it is of another instance of the job";
    case Gone::kLostEachOther:
      return "it and another member cannot reach each other";
    case Gone::kAddressRefuses:
      return "its address refuses connections";
    case Gone::kLinkEndedThere:
      return "it has ended the link with this worker";
    case Gone::kLinkClosed:
      return "the link was closed";
  }
  return "?";
}

}  // namespace sinew::internal
