#pragma once

#include <string>

namespace sinew::internal {

/// LibTorch reads dictionaries, and takes an OrderedDict for nothing, since its own pickles have
/// them in tensors only. `program` is the pickle of a file of Python's torch.save(). Returns it
/// with a plain dictionary in the place of the OrderedDict that it makes, without what else that
/// has (the `_metadata` of a state_dict()). Any other program is returned as it is, damaged ones
/// too.
std::string with_plain_dictionary(const std::string& program);

}  // namespace sinew::internal
