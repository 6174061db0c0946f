#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sinew/groups/process_group.h"

namespace sinew::testing {

/// What the groups of a backend can do, found out by doing it: each function, with each type and
/// reduction, against LibTorch in one process. Thread-safe: ranks that are threads share one.
class FunctionTable {
 public:
  static constexpr int kRanks = 3;

  enum class Results {
    kCompared,
    /// The backend only says what it has: what the group refuses is found out.
    kIgnored,
  };
  explicit FunctionTable(Results results = Results::kCompared) : results_(results) {}

  /// A rank's part; all ranks of a group of kRanks call it at once.
  void fill(const ProcessGroup& group);

  /// In Markdown; `corner` says whose it is.
  std::string text(std::string_view corner) const;
  /// Results that were wrong, errors that were none of kUnimplemented with a sentence, and cells
  /// about which ranks differ.
  std::vector<std::string> problems() const;

 private:
  struct Type;
  struct Op;

  void run_moves(const ProcessGroup& group, const Type& type);
  void run_reductions(const ProcessGroup& group, const Type& type, const Op& op);
  /// A cell: `f` says whether the results are right.
  void run(const ProcessGroup& group, const std::string& row, const Type& type,
           const std::function<bool()>& f);

  const Results results_;

  mutable std::mutex mutex_;
  // In their order.
  std::vector<std::string> rows_;
  // By row and type: whether the group has done it, or has refused.
  std::map<std::string, std::map<std::string, bool>> cells_;
  std::vector<std::string> problems_;
};

}  // namespace sinew::testing
