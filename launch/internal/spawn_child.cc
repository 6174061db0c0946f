#include "sinew/launch/internal/spawn_child.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <exception>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/launch/internal/code_address.h"
#include "sinew/launch/internal/spawn_message.h"
#include "sinew/launch/spawn.h"
#include "sinew/rpc/base/log.h"
#include "sinew/rpc/wire/codec.h"

namespace sinew::internal {
namespace {

// Behind the stage.
constexpr std::size_t kErrorOffset = 8;

using ErrorValue =
    std::tuple<int, std::string, std::string, std::string, int, std::string, std::string>;
using CodeValue = std::tuple<std::string, std::uint64_t, std::string>;

std::uintptr_t resolve(const CodeValue& code) {
  const absl::StatusOr<std::uintptr_t> address =
      resolve_code({std::get<0>(code), std::get<1>(code), std::get<2>(code)});
  if (!address.ok()) throw_error(address.status());
  return *address;
}

void run_task(int rank) {
  absl::StatusOr<SpawnMessageReader> message = SpawnMessageReader::open(kTaskDescriptor, 0);
  if (!message.ok()) throw_error(message.status());
  ::close(kTaskDescriptor);
  const auto [function, trampoline] =
      Codec<std::pair<CodeValue, CodeValue>>::decode(message->value(0, "task", 0));
  reinterpret_cast<SpawnTrampoline>(resolve(trampoline))(resolve(function), rank, *message);
}

}  // namespace

std::string SpawnTicket::text() const {
  return absl::StrCat(rank, kind == Kind::kDaemon ? ",daemon" : ",normal");
}

absl::StatusOr<SpawnTicket> SpawnTicket::parse(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(',', 1));
  SpawnTicket ticket;
  ticket.kind = parts.second == "daemon" ? Kind::kDaemon : Kind::kNormal;
  if (absl::SimpleAtoi(parts.first, &ticket.rank) && ticket.text() == text) return ticket;
  return absl::InvalidArgumentError(
      absl::StrCat("the environment variable ", kVariable, " is '", printable(text, 256),
                   "'; it is for processes that sinew::spawn() starts: unset it"));
}

void write_report(int descriptor, const SpawnReport& report) {
  if (report.stage == SpawnStage::kThrew) {
    const ErrorInfo& error = report.error;
    SpawnMessageWriter message;
    ValueWriter writer = message.next();
    Codec<ErrorValue>::encode(
        writer,
        ErrorValue{static_cast<int>(error.code), printable(error.message), printable(error.peer),
                   printable(error.method), static_cast<int>(error.execution),
                   printable(error.type_name), printable(error.remote_message)});
    const absl::Status written = message.write(descriptor, kErrorOffset);
    if (!written.ok()) {
      log_line("", absl::StrCat("a spawned process cannot report: ", error.message));
    }
  }
  // Last: what it says is there then. If it fails the parent sees how far it came before.
  const char stage = static_cast<char>(report.stage);
  [[maybe_unused]] const ssize_t size = ::pwrite(descriptor, &stage, 1, 0);
}

SpawnReport read_report(int descriptor) {
  SpawnReport report;
  char stage = 0;
  if (::pread(descriptor, &stage, 1, 0) == 1) report.stage = static_cast<SpawnStage>(stage);
  if (report.stage != SpawnStage::kThrew) return report;
  try {
    absl::StatusOr<SpawnMessageReader> message = SpawnMessageReader::open(descriptor, kErrorOffset);
    if (!message.ok()) throw_error(message.status());
    const ErrorValue value = Codec<ErrorValue>::decode(message->value(0, "error", 0));
    report.error.code = static_cast<ErrorCode>(std::get<0>(value));
    report.error.message = std::get<1>(value);
    report.error.peer = std::get<2>(value);
    report.error.method = std::get<3>(value);
    report.error.execution = static_cast<Execution>(std::get<4>(value));
    report.error.type_name = std::get<5>(value);
    report.error.remote_message = std::get<6>(value);
  } catch (const RpcError& error) {
    report.error = error.info();
  }
  return report;
}

int run_spawned(const SpawnTicket& ticket) {
  // What it starts in turn is not to have them.
  for (const int number : {kTaskDescriptor, kReportDescriptor}) {
    ::fcntl(number, F_SETFD, FD_CLOEXEC);
  }
  write_report(kReportDescriptor, {SpawnStage::kRuns, {}});
  try {
    run_task(ticket.rank);
  } catch (...) {
    write_report(kReportDescriptor, {SpawnStage::kThrew, describe(std::current_exception())});
    return 1;
  }
  write_report(kReportDescriptor, {SpawnStage::kReturned, {}});
  return 0;
}

}  // namespace sinew::internal
