// What a failed call tells its caller, on every path.

#include <atomic>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "sinew/tests/support/cluster.h"

namespace errors {

/// An exception type that the caller's program may know nothing of.
class OutOfPaper : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
struct NoException {
  int number = 0;
};

constexpr const char* kManyLines =
    "first line\n\tsecond, 'quoted' \"twice\"\nthird: \xC3\xA9 %s %d\n";

int fail(const std::string& how) {
  if (how == "custom") throw OutOfPaper("tray 2 is empty");
  if (how == "invalid") throw std::invalid_argument("no such tray");
  if (how == "range") throw std::out_of_range("tray 9");
  if (how == "memory") throw std::bad_alloc();
  if (how == "system") {
    throw std::system_error(std::make_error_code(std::errc::no_such_file_or_directory), "open");
  }
  if (how == "lines") throw std::runtime_error(kManyLines);
  if (how == "empty") throw std::runtime_error("");
  if (how == "huge") throw std::runtime_error(std::string(1 << 20, 'x'));
  if (how == "binary") throw std::runtime_error(std::string("a\x01\x1B[31m\xFF z", 10));
  if (how == "torch") (void)(at::ones({2, 3}) + at::ones({2, 4}));
  if (how == "int") throw 42;
  if (how == "text") throw "just text";
  if (how == "struct") throw NoException{7};
  return 1;
}
void fail_void() { throw OutOfPaper("void"); }
sinew::Future<int> fail_before_future() { throw OutOfPaper("before a future"); }
sinew::Future<int> fail_in_future() {
  return sinew::make_ready_future(1).then([](int) -> int { throw OutOfPaper("in a future"); });
}
sinew::Future<int> invalid_future() { return {}; }
int rpc_error() { throw sinew::RpcError(sinew::ErrorCode::kDataLoss, "the disk has gone"); }

class Printer {
 public:
  explicit Printer(int trays) {
    if (trays == 0) throw OutOfPaper("no trays");
  }
  int print() { throw OutOfPaper("while printing"); }
  int pages() { return 3; }
};

std::atomic<int> ran{0};
int missing() { return ++ran; }
/// Nobody serves them: what a caller that was built from other sources means.
int mistyped(int x) { return x; }
int mistyped_secret() { return 0; }
int secret() { return ++ran; }
std::uint8_t to_byte(std::uint8_t byte) {
  ++ran;
  return byte;
}
int fail_there(const std::string& how);

/// One name, two shapes: what two programs built from different sources have.
int shape_int(int x) {
  ++ran;
  return x;
}
std::string shape_text(const std::string& x) {
  ++ran;
  return x;
}

}  // namespace errors

SINEW_METHOD(errors::fail, errors::fail_void, errors::fail_before_future, errors::fail_in_future,
             errors::invalid_future, errors::rpc_error);
SINEW_SERVICE(errors::Printer, (int));
SINEW_METHOD(errors::Printer::print, errors::Printer::pages, errors::missing, errors::to_byte,
             errors::fail_there);
SINEW_METHOD_AS("errors::shape", &errors::shape_int);
SINEW_METHOD_AS("errors::shape", &errors::shape_text);
SINEW_METHOD_AS("errors::shaep", &errors::mistyped);
SINEW_METHOD(errors::secret);
SINEW_METHOD_AS("errors::secrte", &errors::mistyped_secret);

int errors::fail_there(const std::string& how) {
  return sinew::current_worker()
      .peer(sinew::CallContext::current().caller())
      .call<&errors::fail>(how);
}

namespace sinew {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

MethodTable errors_table() {
  MethodTable methods;
  methods.add<&errors::fail>()
      .add<&errors::fail_void>()
      .add<&errors::fail_before_future>()
      .add<&errors::fail_in_future>()
      .add<&errors::invalid_future>()
      .add<&errors::rpc_error>()
      .serve<errors::Printer>()
      .add<&errors::Printer::print>()
      .add<&errors::Printer::pages>()
      .add<&errors::to_byte>()
      .add<&errors::fail_there>()
      .add<&errors::shape_int>()
      .add<&errors::secret>(allow("nobody"));
  return methods;
}

class ErrorsTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    errors::ran = 0;
    start(2, errors_table());
  }
  Peer callee() const { return worker(0).peer(1); }
  RpcError fail(const std::string& how) {
    return error_of([&] { callee().call<&errors::fail>(how); });
  }
  /// The callee is none the worse for it.
  void TearDown() override {
    EXPECT_EQ(callee().call<&errors::fail>("not at all"), 1);
    ClusterTest::TearDown();
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(ErrorsTest);

TEST_P(ErrorsTest, TypeAndTextAreTheSameOnEveryPath) {
  const std::vector<std::pair<std::string, std::function<void()>>> paths = {
      {"sync", [&] { callee().call<&errors::fail>("custom"); }},
      {"async wait", [&] { callee().async<&errors::fail>("custom").wait(); }},
      {"async take", [&] { callee().async<&errors::fail>("custom").take(); }},
      {"async error",
       [&] {
         const Future<int> future = callee().async<&errors::fail>("custom");
         error_of([&] { future.wait(); });
         std::rethrow_exception(future.error());
       }},
      {"remote", [&] { callee().remote<&errors::fail>("custom").to_here(); }},
      {"remote async", [&] { callee().remote<&errors::fail>("custom").to_here_async().wait(); }},
      {"remote created", [&] { callee().remote<&errors::fail>("custom").created().wait(); }},
      {"self", [&] { worker(0).peer(0).call<&errors::fail>("custom"); }},
      {"self remote", [&] { worker(0).self().remote<&errors::fail>("custom").to_here(); }},
      {"self local value", [&] { worker(0).self().remote<&errors::fail>("custom").local_value(); }},
      {"continuation", [&] { callee().async<&errors::fail>("custom").then([](int) {}).wait(); }},
  };
  for (const auto& [name, call] : paths) {
    SCOPED_TRACE(name);
    const RpcError error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::kUnknown);
    EXPECT_EQ(error.type_name(), "errors::OutOfPaper");
    EXPECT_EQ(error.remote_message(), "tray 2 is empty");
    EXPECT_EQ(error.message(), "errors::OutOfPaper: tray 2 is empty");
    EXPECT_EQ(error.execution(), Execution::kMayHaveRun);
  }
}

TEST_P(ErrorsTest, SaysWhoAndWhat) {
  const RpcError error = fail("custom");
  EXPECT_EQ(error.peer(), "worker1");
  EXPECT_EQ(error.method(), "errors::fail");
  EXPECT_STREQ(error.what(),
               "errors::OutOfPaper: tray 2 is empty [UNKNOWN; peer 'worker1'; method "
               "'errors::fail'; from the handler; may have run]");
}

TEST_P(ErrorsTest, StandardExceptionsHaveACode) {
  EXPECT_EQ(fail("invalid").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(fail("invalid").type_name(), "std::invalid_argument");
  EXPECT_EQ(fail("range").code(), ErrorCode::kOutOfRange);
  EXPECT_EQ(fail("memory").code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(fail("memory").type_name(), "std::bad_alloc");
  EXPECT_EQ(fail("system").code(), ErrorCode::kNotFound);
  const RpcError own = error_of([&] { callee().call<&errors::rpc_error>(); });
  EXPECT_EQ(own.code(), ErrorCode::kDataLoss);
  EXPECT_EQ(own.message(), "the disk has gone");
  EXPECT_EQ(own.execution(), Execution::kMayHaveRun);
}

TEST_P(ErrorsTest, ManyLinesStayIntact) {
  const RpcError error = fail("lines");
  EXPECT_EQ(error.remote_message(), errors::kManyLines);
  EXPECT_THAT(error.what(), HasSubstr("first line\n\tsecond, 'quoted' \"twice\"\n  third: "));
}

TEST_P(ErrorsTest, WhatIsNoStandardException) {
  EXPECT_STREQ(fail("int").what(),
               "int: 42 [UNKNOWN; peer 'worker1'; method 'errors::fail'; from the handler; may "
               "have run]");
  EXPECT_EQ(fail("int").type_name(), "int");
  EXPECT_EQ(fail("text").type_name(), "char const*");
  EXPECT_EQ(fail("text").remote_message(), "just text");
  EXPECT_EQ(fail("struct").type_name(), "errors::NoException");
  EXPECT_THAT(fail("struct").what(),
              AllOf(HasSubstr("nothing more is known"), HasSubstr("method 'errors::fail'")));
  EXPECT_EQ(fail("struct").execution(), Execution::kMayHaveRun);
}

TEST_P(ErrorsTest, EmptyText) {
  EXPECT_EQ(fail("empty").message(), "std::runtime_error");
  EXPECT_EQ(fail("empty").remote_message(), "");
}

TEST_P(ErrorsTest, HugeTextIsCut) {
  const RpcError error = fail("huge");
  EXPECT_LT(error.message().size(), 17 * 1024u);
  EXPECT_LT(error.remote_message().size(), 17 * 1024u);
  EXPECT_THAT(error.remote_message(),
              AllOf(StartsWith("xxx"), EndsWith(" ... (cut; 1048576 bytes in all)")));
}

TEST_P(ErrorsTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(fail("binary").remote_message(), "a\\x01\\x1b[31m\xEF\xBF\xBD z");
}

TEST_P(ErrorsTest, VoidAndAsynchronousHandlers) {
  EXPECT_EQ(error_of([&] { callee().call<&errors::fail_void>(); }).remote_message(), "void");
  EXPECT_EQ(error_of([&] { callee().call<&errors::fail_before_future>(); }).remote_message(),
            "before a future");
  const RpcError late = error_of([&] { callee().call<&errors::fail_in_future>(); });
  EXPECT_EQ(late.remote_message(), "in a future");
  EXPECT_EQ(late.type_name(), "errors::OutOfPaper");
  EXPECT_EQ(error_of([&] { callee().remote<&errors::fail_before_future>().to_here(); }).type_name(),
            "errors::OutOfPaper");
  EXPECT_EQ(error_of([&] { callee().remote<&errors::fail_in_future>().to_here(); }).type_name(),
            "errors::OutOfPaper");
  EXPECT_EQ(error_of([&] { callee().call<&errors::invalid_future>(); }).code(),
            ErrorCode::kFailedPrecondition);
}

TEST_P(ErrorsTest, Constructors) {
  const auto broken = callee().remote<errors::Printer>(0);
  for (int i = 0; i < 2; ++i) {
    const RpcError error = error_of([&] { broken.call<&errors::Printer::pages>(); });
    EXPECT_EQ(error.type_name(), "errors::OutOfPaper");
    EXPECT_EQ(error.remote_message(), "no trays");
  }
  EXPECT_EQ(error_of([&] { broken.created().wait(); }).remote_message(), "no trays");
}

TEST_P(ErrorsTest, MemberFunctions) {
  const auto printer = callee().remote<errors::Printer>(1);
  const RpcError error = error_of([&] { printer.call<&errors::Printer::print>(); });
  EXPECT_EQ(error.type_name(), "errors::OutOfPaper");
  EXPECT_EQ(error.method(), "errors::Printer::print");
  EXPECT_EQ(error.peer(), "worker1");
  EXPECT_EQ(printer.call<&errors::Printer::pages>(), 3);
}

TEST_P(ErrorsTest, ErrorOfANestedCallKeepsItsTypeAndText) {
  const RpcError error = error_of([&] { callee().call<&errors::fail_there>("custom"); });
  EXPECT_EQ(error.type_name(), "errors::OutOfPaper");
  EXPECT_EQ(error.remote_message(), "tray 2 is empty");
  EXPECT_EQ(error.execution(), Execution::kMayHaveRun);
  EXPECT_EQ(error.method(), "errors::fail_there");
  EXPECT_EQ(error.peer(), "worker1");
}

TEST_P(ErrorsTest, LibTorchsErrorsHaveNoBacktrace) {
  const RpcError error = fail("torch");
  EXPECT_EQ(error.type_name(), "c10::Error");
  EXPECT_THAT(error.message(), HasSubstr("must match"));
  EXPECT_THAT(error.what(), Not(HasSubstr("frame #")));
}

TEST_P(ErrorsTest, MethodThatTheTableLacks) {
  for (const auto& call :
       std::vector<std::function<void()>>{[&] { callee().call<&errors::missing>(); },
                                          [&] { callee().async<&errors::missing>().wait(); },
                                          [&] { callee().remote<&errors::missing>().to_here(); }}) {
    const RpcError error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
    EXPECT_EQ(error.execution(), Execution::kDidNotRun);
    EXPECT_EQ(error.message(),
              "worker 'worker1' serves no method 'errors::missing': code does not travel, so add "
              "it to the MethodTable "
              "of that worker");
  }
  EXPECT_EQ(errors::ran, 0);
}

TEST_P(ErrorsTest, MistypedNameIsAnsweredWithTheMostSimilarOne) {
  const RpcError error = error_of([&] { callee().call<&errors::mistyped>(1); });
  EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
  EXPECT_EQ(error.message(),
            "worker 'worker1' serves no method 'errors::shaep', which the caller was built with as "
            "(integer)->integer; the most similar that it serves is 'errors::shape', "
            "(integer)->integer: code does not travel, so call that, or add the other one to the "
            "MethodTable of that worker");
  EXPECT_EQ(errors::ran, 0);
}

TEST_P(ErrorsTest, WhatTheCallerMayNotCallIsNotSuggested) {
  const RpcError error = error_of([&] { callee().call<&errors::mistyped_secret>(); });
  EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
  EXPECT_THAT(error.message(), Not(HasSubstr("errors::secret'")));
}

TEST_P(ErrorsTest, SignatureThatDiffers) {
  const RpcError error = error_of([&] { callee().call<&errors::shape_text>("x"); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.execution(), Execution::kDidNotRun);
  EXPECT_EQ(error.message(),
            "method 'errors::shape' is (integer)->integer at worker 'worker1', but the caller was "
            "built with "
            "(text)->text: build both from the same declaration");
  EXPECT_EQ(errors::ran, 0);
  EXPECT_EQ(callee().call<&errors::shape_int>(3), 3);
}

TEST(ErrorsTableTest, OneNameForTwoFunctionsIsRefused) {
  MethodTable methods;
  methods.add<&errors::shape_int>();
  const RpcError error = error_of([&] { methods.add<&errors::shape_text>(); });
  EXPECT_EQ(error.code(), ErrorCode::kAlreadyExists);
  EXPECT_THAT(error.message(), HasSubstr("errors::shape"));
}

TEST_P(ErrorsTest, FailedFutureFailsOnEveryLook) {
  const Future<int> future = callee().async<&errors::fail>("custom");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(error_of([&] { future.wait(); }).remote_message(), "tray 2 is empty");
    EXPECT_TRUE(future.done());
  }
  EXPECT_EQ(error_of([&] { future.value(); }).type_name(), "errors::OutOfPaper");
  EXPECT_NE(future.error(), nullptr);
}

TEST_P(ErrorsTest, ManyFailuresAtOnce) {
  std::vector<Future<int>> futures;
  for (int i = 0; i < 200; ++i) {
    futures.push_back(callee().async<&errors::fail>(i % 2 == 0 ? "custom" : "fine"));
  }
  for (std::size_t i = 0; i < futures.size(); ++i) {
    if (i % 2 == 0) {
      EXPECT_EQ(error_of([&] { futures[i].wait(); }).type_name(), "errors::OutOfPaper");
    } else {
      EXPECT_EQ(futures[i].wait(), 1);
    }
  }
}

}  // namespace
}  // namespace sinew
