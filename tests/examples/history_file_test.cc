#include "sinew/examples/common/history_file.h"

#include <stdexcept>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/common/files.h"
#include "sinew/tests/support/temporary_folder.h"

namespace examples {
namespace {

using testing::HasSubstr;
using Result = HistoryFile::Result;

TEST(HistoryFileTest, AppendsALineForWhatWasAskedAndWhatBecameOfIt) {
  const sinew::testing::TemporaryFolder folder;
  const auto file = folder.path() / "history";
  write_file(file, "before\n");
  {
    HistoryFile history(file, "trainer0", "servers");
    HistoryFile other(file, "trainer1", "servers");
    history.add({"trainer0.1", "1.0.0", 0}, Result::kUnknown);
    other.add({"trainer1.1", "1.1.0", 0}, Result::kDidNotRun);
    history.add({"trainer0.1", "1.0.0", 0}, Result::kOk, {{"server0", 1}, {"server1", 2}});
    history.add_load(1, {{"server0", 0}});
    history.add_increment("trainer0.2", Result::kOk);
    history.add_applied("trainer0.2");
  }
  EXPECT_EQ(
      read_file(file),
      "before\n"
      R"({"kind": "step", "id": "trainer0.1", "worker": "trainer0", "target": "servers", )"
      R"("result": "unknown", "step": "1.0.0", "run": 0, "versions": {}})"
      "\n"
      R"({"kind": "step", "id": "trainer1.1", "worker": "trainer1", "target": "servers", )"
      R"("result": "did_not_run", "step": "1.1.0", "run": 0, "versions": {}})"
      "\n"
      R"({"kind": "step", "id": "trainer0.1", "worker": "trainer0", "target": "servers", )"
      R"("result": "ok", "step": "1.0.0", "run": 0, "versions": {"server0": 1, "server1": 2}})"
      "\n"
      R"({"kind": "load", "id": "load1", "worker": "trainer0", "target": "servers", )"
      R"("result": "ok", "run": 1, "versions": {"server0": 0}})"
      "\n"
      R"({"kind": "increment", "id": "trainer0.2", "worker": "trainer0", )"
      R"("target": "servers", "result": "ok"})"
      "\n"
      R"({"kind": "applied", "id": "trainer0.2", "worker": "trainer0", )"
      R"("target": "servers"})"
      "\n");
}

TEST(HistoryFileTest, WithoutAFileNothingIsWritten) {
  HistoryFile history("", "trainer0", "servers");
  history.add({"trainer0.1", "1.0.0", 0}, Result::kOk);
}

TEST(HistoryFileTest, NamesTheFileThatCannotBeWritten) {
  try {
    HistoryFile("/nowhere/history", "trainer0", "servers");
    FAIL() << "it did not throw";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/history: No such file or directory"));
  }
  HistoryFile full("/dev/full", "trainer0", "servers");
  EXPECT_THROW(full.add_load(1, {}), std::runtime_error);
}

}  // namespace
}  // namespace examples
