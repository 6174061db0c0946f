#pragma once

#include <string>

#include "sinew/sinew.h"

namespace ps_rnn {

/// The end of the job, which the first trainer publishes. The others wait for it before they shut
/// down: who shuts down must know all members, and some may be started again until then.
/// Thread-safe.
class Ending {
 public:
  static constexpr const char* kName = "ending";

  /// Holds no thread.
  sinew::Future<void> wait() const { return over_.future(); }
  void come() const { over_.set_value(); }

 private:
  const sinew::Promise<void> over_;
};

}  // namespace ps_rnn

SINEW_SERVICE(ps_rnn::Ending, (), wait);
