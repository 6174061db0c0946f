#pragma once

namespace sinew {

/// What Worker::publish() does with a name under which something is published already.
enum class WhenTaken {
  /// It throws kAlreadyExists.
  kFail,
  /// The new object takes the place of the old one; references to that stay as they are.
  kReplace,
};

}  // namespace sinew
