// A server all of whose threads wait in user code: who waits behind them is told so, and so is who
// reads the server's log.

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::testing::ChildProcess;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(BusyServer, SaysThatCallsWaitForItsThreads) {
  constexpr int kCallers = 3;
  const sinew::testing::TemporaryFolder folder;
  const std::string log = folder.file("log");
  // It has two threads.
  ChildProcess server({"/bin/sh", "-c", "exec \"$0\" 2>\"$1\"", SINEW_TEST_WORKER, log});
  std::vector<std::unique_ptr<ChildProcess>> callers;
  const auto start = [&](ChildProcess& child, int rank) {
    child.send(absl::StrCat("start call_ms=8000 name=w", rank, " init=file://", folder.file("meet"),
                            " world=", kCallers + 1, " rank=", rank));
  };
  start(server, 0);
  for (int rank = 1; rank <= kCallers; ++rank) {
    callers.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER}));
    start(*callers.back(), rank);
  }
  ASSERT_THAT(server.receive(), StartsWith("ok "));
  for (const auto& caller : callers) ASSERT_THAT(caller->receive(), StartsWith("ok "));

  // Longer than the calls behind them wait.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(callers[0]->ask(absl::StrCat("begin doze", i, " doze w0 12000")), "ok ");
  }
  for (std::string active = "ok 0"; active != "ok 2";) {
    active = server.ask("counter rpc.server_active_calls");
  }
  for (int i = 1; i < kCallers; ++i) callers[static_cast<std::size_t>(i)]->send("add w0");
  for (int i = 1; i < kCallers; ++i) {
    EXPECT_THAT(callers[static_cast<std::size_t>(i)]->receive(),
                AllOf(StartsWith("error "), HasSubstr("worker 'w0' did not begin the call within "),
                      HasSubstr("queued behind 2 handlers")));
  }
  EXPECT_THAT(text_of(log), AllOf(HasSubstr("calls wait for a thread, one for "),
                                  HasSubstr("2 handlers run, of 2 that may at once")));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(callers[0]->ask(absl::StrCat("end doze", i)), HasSubstr("did not answer within 8"));
  }
  server.send("shutdown graceful");
  for (const auto& caller : callers) caller->send("shutdown graceful");
  EXPECT_EQ(server.receive(), "ok ");
  for (const auto& caller : callers) EXPECT_EQ(caller->receive(), "ok ");
}

}  // namespace
