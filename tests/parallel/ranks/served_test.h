#pragma once

#include <string>

#include "sinew/sinew.h"
#include "sinew/tests/parallel/ranks/rank_test.h"

namespace testranks {

/// A test whose ranks have a worker each, its trainer, in a job with one more worker: the server,
/// in rank 0's process.
class ServedTest : public RankTest {
 protected:
  /// All ranks call it.
  void start_workers(const sinew::MethodTable& methods);
  void end_workers();

  sinew::Worker server_;
  sinew::Worker worker_;

 private:
  sinew::Worker start(const std::string& name, int number, const sinew::MethodTable& methods) const;
};

}  // namespace testranks
