#pragma once

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/groups/process_group.h"
#include "sinew/rpc/base/error.h"

namespace testranks {

/// Which rank of how many this process is, and the folder that all share.
struct Place {
  int rank = 0;
  int size = 1;
  std::string folder;
};
/// From the environment that ranks_process_test sets.
const Place& place();

/// A group of all ranks, which meet under the running test's name and `suffix`.
sinew::ProcessGroup make_group(const std::string& suffix = "");

/// A test that all ranks run at the same time, with a group of its own.
class RankTest : public ::testing::Test {
 protected:
  void SetUp() override { group_ = make_group(); }
  const sinew::ProcessGroup& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

 private:
  sinew::ProcessGroup group_;
};

/// The RpcError that `call` throws. Fails the test if it throws none.
sinew::RpcError error_of(const std::function<void()>& call);

}  // namespace testranks
