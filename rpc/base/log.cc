#include "sinew/rpc/base/log.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/flight_recorder.h"

namespace sinew::internal {

void log_line(const std::string& worker, const std::string& text) {
  FlightRecorder::of_process().add("log", text);
  // One write, so that lines of several workers do not mix.
  std::cerr << absl::StrCat("[sinew", worker.empty() ? "" : " ", worker, "] ",
                            indented(printable(text)), "\n");
}

}  // namespace sinew::internal
