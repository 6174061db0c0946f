#include "sinew/rpc/base/error.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>

namespace app {
class ModelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
struct NotAnException {};
}  // namespace app

namespace sinew {
namespace {

using internal::describe;
using internal::indented;
using internal::make_error;
using internal::printable;
using internal::to_status;

std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

template <class E>
ErrorInfo describe_exception(E error) {
  return describe(std::make_exception_ptr(std::move(error)));
}

TEST(RpcErrorTest, WhatShowsEverythingThatIsKnown) {
  EXPECT_STREQ(RpcError(ErrorCode::kNotFound, "no such file").what(), "no such file [NOT_FOUND]");
  ErrorInfo info;
  info.code = ErrorCode::kUnavailable;
  info.message = "the worker left";
  info.peer = "observer1";
  info.method = "app::step";
  EXPECT_STREQ(RpcError(info).what(),
               "the worker left [UNAVAILABLE; peer 'observer1'; method 'app::step'; from this "
               "worker; did not run]");
  info.method.clear();
  info.execution = Execution::kMayHaveRun;
  info.origin = ErrorOrigin::kNetwork;
  EXPECT_STREQ(RpcError(info).what(),
               "the worker left [UNAVAILABLE; peer 'observer1'; from the network; may have run]");
  info.peer.clear();
  EXPECT_STREQ(RpcError(info).what(),
               "the worker left [UNAVAILABLE; from the network; may have run]");
  info.origin = ErrorOrigin::kThisWorker;
  EXPECT_STREQ(RpcError(info).what(), "the worker left [UNAVAILABLE; may have run]");
  EXPECT_STREQ(RpcError(ErrorCode::kAborted, "").what(), "[ABORTED]");
}

TEST(RpcErrorTest, WhatShowsWhereItArose) {
  ErrorInfo info;
  info.code = ErrorCode::kNotFound;
  info.message = "no such key";
  info.peer = "agent";
  info.method = "app::act";
  info.execution = Execution::kMayHaveRun;
  info.origin = ErrorOrigin::kNestedCall;
  info.causes = {{"store", "app::find", ErrorOrigin::kNestedCall},
                 {"disk", "app::read", ErrorOrigin::kHandler}};
  EXPECT_STREQ(RpcError(info).what(),
               "no such key [NOT_FOUND; peer 'agent'; method 'app::act'; from a nested call: "
               "'app::find' at 'store' -> 'app::read' at 'disk' (the handler); may have run]");
  info.causes.clear();
  EXPECT_STREQ(RpcError(info).what(),
               "no such key [NOT_FOUND; peer 'agent'; method 'app::act'; from a nested call; may "
               "have run]");
  std::ostringstream out;
  out << ErrorOrigin::kThisWorker << ", " << ErrorOrigin::kNetwork << ", " << ErrorOrigin::kCallee
      << ", " << ErrorOrigin::kHandler;
  EXPECT_EQ(out.str(), "this worker, the network, the callee, the handler");
}

TEST(RpcErrorTest, KeepsLinesAndFields) {
  ErrorInfo info;
  info.code = ErrorCode::kUnknown;
  info.message = "first line\n  second line\n";
  info.type_name = "app::ModelError";
  info.remote_message = "first line\n  second line\n";
  const RpcError error(info);
  EXPECT_STREQ(error.what(), "first line\n  second line\n [UNKNOWN]");
  const RpcError copy = error;
  EXPECT_EQ(copy.code(), ErrorCode::kUnknown);
  EXPECT_EQ(copy.message(), info.message);
  EXPECT_EQ(copy.type_name(), "app::ModelError");
  EXPECT_EQ(copy.remote_message(), info.remote_message);
  EXPECT_EQ(copy.execution(), Execution::kDidNotRun);
  EXPECT_EQ(&copy.info(), &error.info());
  static_assert(std::is_nothrow_copy_constructible_v<RpcError>);
}

TEST(RpcErrorTest, ExecutionPrints) {
  std::ostringstream out;
  out << Execution::kDidNotRun << ", " << Execution::kMayHaveRun;
  EXPECT_EQ(out.str(), "did not run, may have run");
}

TEST(ErrorTest, WrapsAStatus) {
  const auto error = make_error(absl::DeadlineExceededError("too late"), "ps", "app::push",
                                Execution::kMayHaveRun);
  EXPECT_EQ(what_of(error),
            "too late [DEADLINE_EXCEEDED; peer 'ps'; method 'app::push'; from this worker; may "
            "have run]");
  EXPECT_EQ(to_status(error), absl::DeadlineExceededError("too late"));
  EXPECT_THROW(internal::throw_error(absl::AbortedError("x")), RpcError);
  // Nobody should do it, but it must not become a success.
  EXPECT_EQ(describe(make_error(absl::OkStatus())).code, ErrorCode::kInternal);
  EXPECT_FALSE(to_status(std::make_exception_ptr(RpcError(ErrorCode::kOk, "odd"))).ok());
}

TEST(ErrorTest, DescribesStandardExceptions) {
  EXPECT_EQ(describe_exception(std::bad_alloc()).code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(describe_exception(std::invalid_argument("x")).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(describe_exception(std::domain_error("x")).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(describe_exception(std::length_error("x")).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(describe_exception(std::out_of_range("x")).code, ErrorCode::kOutOfRange);
  EXPECT_EQ(describe_exception(std::range_error("x")).code, ErrorCode::kOutOfRange);
  EXPECT_EQ(describe_exception(std::overflow_error("x")).code, ErrorCode::kOutOfRange);
  EXPECT_EQ(describe_exception(std::underflow_error("x")).code, ErrorCode::kOutOfRange);
  EXPECT_EQ(describe_exception(std::logic_error("x")).code, ErrorCode::kUnknown);
  EXPECT_EQ(describe_exception(
                std::system_error(std::make_error_code(std::errc::no_such_file_or_directory)))
                .code,
            ErrorCode::kNotFound);
  EXPECT_EQ(describe_exception(std::system_error(std::error_code())).code, ErrorCode::kUnknown);
  EXPECT_EQ(describe_exception(std::system_error(std::make_error_code(std::io_errc::stream))).code,
            ErrorCode::kUnknown);
}

TEST(ErrorTest, DescribesTypesByTheirNames) {
  const ErrorInfo own = describe_exception(app::ModelError("weights\nmissing"));
  EXPECT_EQ(own.code, ErrorCode::kUnknown);
  EXPECT_EQ(own.type_name, "app::ModelError");
  EXPECT_EQ(own.remote_message, "weights\nmissing");
  EXPECT_EQ(own.message, "app::ModelError: weights\nmissing");
  const ErrorInfo odd = describe_exception(app::NotAnException());
  EXPECT_EQ(odd.code, ErrorCode::kUnknown);
  EXPECT_EQ(odd.type_name, "app::NotAnException");
  EXPECT_EQ(odd.message, "app::NotAnException: it is no std::exception, so nothing more is known");
}

TEST(ErrorTest, ShowsArithmeticValuesAndTexts) {
  const auto text = [](const auto& value) { return describe_exception(value).message; };
  EXPECT_EQ(text(42), "int: 42");
  EXPECT_EQ(text(-7L), "long: -7");
  EXPECT_EQ(text(std::uint64_t{1} << 63), "unsigned long: 9223372036854775808");
  EXPECT_EQ(text(2.5), "double: 2.5");
  EXPECT_EQ(text(true), "bool: true");
  EXPECT_EQ(text('x'), "char: x");
  EXPECT_EQ(text("no paper"), "char const*: no paper");
  EXPECT_EQ(text(const_cast<char*>("no paper")), "char*: no paper");
  EXPECT_EQ(text(std::string("no ink")), "std::string: no ink");
  EXPECT_EQ(text(static_cast<const char*>(nullptr)), "char const*");
  const ErrorInfo number = describe_exception(42);
  EXPECT_EQ(number.code, ErrorCode::kUnknown);
  EXPECT_EQ(number.type_name, "int");
  EXPECT_EQ(number.remote_message, "42");
  const ErrorInfo status = describe_exception(absl::NotFoundError("no tray"));
  EXPECT_EQ(status.code, ErrorCode::kNotFound);
  EXPECT_EQ(status.message, "no tray");
}

// As c10::Error writes them.
TEST(ErrorTest, LeavesBacktracesOut) {
  const std::string text = "sizes differ\nand so do types";
  const std::string trace =
      "\nException raised from check at ../aten/src/x.cc:12 (most recent call first):\nframe #0: "
      "f() (0x7f in /lib/libc10.so)\nframe #1: main\n";
  EXPECT_EQ(describe_exception(std::runtime_error(text + trace)).remote_message, text);
  EXPECT_EQ(describe_exception(std::runtime_error(text)).remote_message, text);
  const std::string other = "it says\nException raised from here\nand goes on";
  EXPECT_EQ(describe_exception(std::runtime_error(other)).remote_message, other);
}

TEST(ErrorTest, ALostPeerIsTheNetworks) {
  const ErrorInfo lost = describe(make_error(
      internal::about_peer(absl::UnavailableError("it is gone"), "ps"), "", "app::push"));
  EXPECT_EQ(lost.peer, "ps");
  EXPECT_EQ(lost.origin, ErrorOrigin::kNetwork);
  EXPECT_EQ(describe(make_error(absl::UnavailableError("x"))).origin, ErrorOrigin::kThisWorker);
}

TEST(ErrorTest, AnRpcErrorKeepsItsFields) {
  ErrorInfo info;
  info.code = ErrorCode::kPermissionDenied;
  info.message = "no";
  info.peer = "p";
  info.method = "m";
  info.execution = Execution::kMayHaveRun;
  info.origin = ErrorOrigin::kHandler;
  const ErrorInfo same = describe(make_error(info));
  EXPECT_EQ(same.code, info.code);
  EXPECT_EQ(same.message, info.message);
  EXPECT_EQ(same.peer, info.peer);
  EXPECT_EQ(same.method, info.method);
  EXPECT_EQ(same.execution, info.execution);
  EXPECT_EQ(same.origin, ErrorOrigin::kHandler);
  EXPECT_EQ(same.type_name, "");
}

TEST(PrintableTest, LeavesOrdinaryTextAlone) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("line one\n\tline two"), "line one\n\tline two");
  EXPECT_EQ(printable("na\u00EFve \u4E2D\u6587 \U0001F600"), "na\u00EFve \u4E2D\u6587 \U0001F600");
}

TEST(IndentedTest, NoLineLooksLikeTheProgramsOwn) {
  EXPECT_EQ(indented("failed\nall is well\n\nworker 0: done\n"),
            "failed\n  all is well\n\n  worker 0: done\n");
  EXPECT_EQ(indented("failed\n  all is well\n\tso far"), "failed\n  all is well\n\tso far");
}

TEST(PrintableTest, EscapesControlCharacters) {
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x1b[31mred\r\x7f"), "\\x1b[31mred\\x0d\\x7f");
  EXPECT_EQ(printable("\u009B31m"), "\\xc2\\x9b31m") << "the one-character form of ESC [";
}

TEST(PrintableTest, ReplacesInvalidUtf8) {
  const std::string bad = "\uFFFD";
  EXPECT_EQ(printable("\xff"), bad);
  EXPECT_EQ(printable("a\x80z"), "a" + bad + "z");
  EXPECT_EQ(printable("\xc3"), bad) << "cut short";
  EXPECT_EQ(printable("\xe4\xb8z"), bad + bad + "z");
  EXPECT_EQ(printable("\xc0\xaf"), bad + bad) << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), bad + bad + bad) << "surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), bad + bad + bad + bad) << "beyond U+10FFFF";
  EXPECT_EQ(printable("\xf0\x80\x80\x80"), bad + bad + bad + bad) << "overlong";
}

TEST(PrintableTest, CutsLongTextsBetweenCharacters) {
  EXPECT_EQ(printable("12345", 5), "12345");
  EXPECT_EQ(printable("123456", 5), "12345 ... (cut; 6 bytes in all)");
  EXPECT_EQ(printable("1234\u4E2D", 5), "1234 ... (cut; 7 bytes in all)");
  EXPECT_EQ(printable("123\x01", 5), "123 ... (cut; 4 bytes in all)");
  EXPECT_EQ(printable(std::string(20000, 'x')).size(),
            16 * 1024 + std::string(" ... (cut; 20000 bytes in all)").size());
}

}  // namespace
}  // namespace sinew
