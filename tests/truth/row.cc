#include "sinew/tests/truth/row.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew::testing {
namespace {

std::string text_of(const Numbers& numbers) {
  return absl::StrJoin(numbers, ", ", [](std::string* out, double number) {
    std::ostringstream digits;
    digits.precision(10);
    digits << number;
    absl::StrAppend(out, digits.str());
  });
}

bool is_near(double number, double right, double precision) {
  if (std::isnan(right) || std::isinf(right)) {
    return std::isnan(right) ? std::isnan(number) : number == right;
  }
  return std::abs(number - right) <= precision * std::max(1.0, std::abs(right));
}

/// A rank that waits for one which does not come hears of it before the whole table does.
ProcessGroup own_group(const ProcessGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  GroupOptions options;
  options.timeout = std::chrono::seconds(20);
  return group.new_group(ranks, options);
}

/// What all ranks have seen, as far as it is as long as what is right.
std::vector<Numbers> of_all_ranks(const ProcessGroup& group, Numbers seen, std::size_t count) {
  seen.resize(count, std::nan(""));
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank) {
    all.push_back(at::empty({static_cast<std::int64_t>(count)}, at::kDouble));
  }
  group.all_gather(all, at::tensor(seen, at::kDouble));
  std::vector<Numbers> numbers;
  for (const at::Tensor& one : all) {
    numbers.emplace_back(one.data_ptr<double>(), one.data_ptr<double>() + count);
  }
  return numbers;
}

std::string compare(const std::vector<Numbers>& all, const Numbers& right, double precision) {
  bool is_right = true;
  std::string seen;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t i = 0; i < right.size(); ++i) {
      const bool is_as_rank_0s = is_near(all[rank][i], all[0][i], 0);
      is_right = is_right && is_as_rank_0s && is_near(all[rank][i], right[i], precision);
    }
    absl::StrAppend(&seen, rank == 0 ? "" : "; ", text_of(all[rank]), " on rank ", rank);
  }
  return is_right ? "" : seen;
}

}  // namespace

// ---- The table.

std::vector<std::string> wrong_rows(const ProcessGroup& group, const TruthRows& rows) {
  std::vector<std::string> wrong;
  for (const TruthRow& row : rows) {
    std::string seen;
    try {
      seen = row.run(group);
    } catch (const std::exception& error) {
      seen = absl::StrCat("it throws: ", error.what());
    }
    // Some rows are for some of the ranks alone.
    group.barrier();
    if (seen.empty()) continue;
    wrong.push_back(absl::StrCat(row.program, ": rank ", group.rank(), " of ", group.size(),
                                 ": right: ", row.right, ": seen: ", seen));
  }
  return wrong;
}

TruthRow numbers_row(const std::string& program, const Right& right,
                     const std::function<Numbers(const ProcessGroup& group)>& run,
                     double precision) {
  const std::string text =
      absl::StrCat(text_of(right(2)), " (two ranks), ", text_of(right(3)), " (three)");
  return {program, text, [=](const ProcessGroup& group) {
            const ProcessGroup own = own_group(group);
            Numbers seen;
            std::string thrown;
            try {
              seen = run(own);
            } catch (const std::exception& error) {
              thrown = absl::StrCat("it throws: ", error.what());
              // The others may wait for this rank.
              own.destroy();
            }
            const Numbers expected = right(group.size());
            const std::string otherwise =
                compare(of_all_ranks(group, seen, expected.size()), expected, precision);
            return thrown.empty() ? otherwise : thrown;
          }};
}

TruthRow refused_row(const std::string& program, const std::string& sentence,
                     const std::function<void(const ProcessGroup& group)>& run) {
  return {program, absl::StrCat("refused: ...", sentence, "..."), [=](const ProcessGroup& group) {
            const ProcessGroup own = own_group(group);
            const std::string otherwise = not_refused(sentence, [&] { run(own); });
            // Nobody takes the group along while others are still about to be refused.
            group.barrier();
            return otherwise;
          }};
}

// ---- What programs are made of.

std::string differs(const at::Tensor& tensor, const at::Tensor& right) {
  const bool is_alike =
      tensor.scalar_type() == right.scalar_type() && tensor.sizes() == right.sizes() &&
      (at::isFloatingType(tensor.scalar_type()) ? at::allclose(tensor, right, 0, 0, true)
                                                : tensor.equal(right));
  if (is_alike) return "";
  std::ostringstream text;
  text << tensor << ", and not " << right;
  return text.str();
}

std::string differ(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& right) {
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    const std::string problem = differs(tensors[at], right[at]);
    if (!problem.empty()) return absl::StrCat("tensor ", at, ": ", problem);
  }
  return tensors.size() == right.size() ? "" : "there are more or less tensors";
}

std::string not_refused(const std::string& sentence, const std::function<void()>& f) {
  try {
    f();
  } catch (const RpcError& error) {
    if (error.message().find(sentence) != std::string::npos) return "";
    return absl::StrCat("the error is: ", error.what());
  }
  return absl::StrCat("nothing was refused, such as: ", sentence);
}

void must_refuse(const std::string& sentence, const std::function<void()>& f) {
  const std::string otherwise = not_refused(sentence, f);
  if (!otherwise.empty()) throw std::runtime_error(otherwise);
}

}  // namespace sinew::testing
