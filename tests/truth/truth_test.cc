// The table of truth over real processes: this program starts itself once for each rank, and once
// more as the server, which rows of programs that train call. TRUTH_ROWS in the environment: only
// the rows that have this in their names.

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"
#include "sinew/tests/truth/collectives.h"
#include "sinew/tests/truth/programs.h"

using sinew::testing::ChildProcess;
using sinew::testing::EndedProcess;
using sinew::testing::TemporaryFolder;
using sinew::testing::TruthRow;
using sinew::testing::TruthRows;
using ::testing::HasSubstr;

namespace {

TruthRows rows_of(void (*add)(TruthRows& rows)) {
  TruthRows rows;
  add(rows);
  return rows;
}

const std::map<std::string, std::function<TruthRows()>>& subjects() {
  using namespace sinew::testing;
  static const std::map<std::string, std::function<TruthRows()>> all = {
      {"collectives", &collectives},
      {"passes", [] { return rows_of(&add_passes); }},
      {"failures", [] { return rows_of(&add_failures); }},
      {"uneven_inputs", [] { return rows_of(&add_uneven_inputs); }},
      {"normalisation", [] { return rows_of(&add_normalisation); }},
      {"optimizers", [] { return rows_of(&add_optimizers); }},
      {"settings", [] { return rows_of(&add_settings); }},
  };
  return all;
}

// ---- The test.

class Truth : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Truth, IsWhatComesOut) {
  const auto& [subject, size] = GetParam();
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<ChildProcess>> processes;
  for (int rank = 0; rank <= size; ++rank) {
    processes.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{"/proc/self/exe"},
        std::vector<std::string>{absl::StrCat("TRUTH_RANK=", rank),
                                 absl::StrCat("TRUTH_SIZE=", size),
                                 absl::StrCat("TRUTH_FOLDER=", folder.file("")),
                                 absl::StrCat("TRUTH_SUBJECT=", subject), "OMP_NUM_THREADS=1"}));
  }
  const std::vector<EndedProcess> ended = sinew::testing::run_to_the_end(processes);
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_EQ(ended[rank].code, 0) << "rank " << rank;
    EXPECT_THAT(ended[rank].output, HasSubstr(" rows, 0 of them wrong")) << "rank " << rank;
  }
}

std::vector<std::string> subject_names() {
  std::vector<std::string> names;
  for (const auto& [name, rows] : subjects()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    Table, Truth, ::testing::Combine(::testing::ValuesIn(subject_names()), ::testing::Values(2, 3)),
    [](const auto& named) {
      return absl::StrCat(std::get<0>(named.param), "_", std::get<1>(named.param));
    });

// ---- A rank.

int run_as_rank(int rank) {
  const int size = std::stoi(std::getenv("TRUTH_SIZE"));
  const std::string folder = std::getenv("TRUTH_FOLDER");
  sinew::WorkerOptions options;
  options.name = rank == size ? "server" : absl::StrCat("trainer", rank);
  options.rank = rank;
  options.world_size = size + 1;
  options.init_method = absl::StrCat("file://", folder, "/workers");
  options.methods = sinew::testing::served();
  const sinew::Worker worker = sinew::init_rpc(options);
  std::vector<std::string> wrong;
  TruthRows rows;
  if (rank < size) {
    sinew::GroupOptions of_group;
    of_group.init_method = absl::StrCat("file://", folder, "/group");
    of_group.rank = rank;
    of_group.world_size = size;
    of_group.timeout = std::chrono::minutes(2);
    const char* const only = std::getenv("TRUTH_ROWS");
    for (const TruthRow& row : subjects().at(std::getenv("TRUTH_SUBJECT"))()) {
      if (only == nullptr || absl::StrContains(row.program, only)) rows.push_back(row);
    }
    wrong = wrong_rows(sinew::init_process_group(of_group), rows);
    worker.shutdown();
  } else {
    worker.serve_until_done();
  }
  for (const std::string& row : wrong) std::cout << row << "\n";
  std::cout << rows.size() << " rows, " << wrong.size() << " of them wrong" << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* const rank = std::getenv("TRUTH_RANK")) return run_as_rank(std::stoi(rank));
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
