#include "sinew/rpc/base/log.h"

#include <chrono>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/flight_recorder.h"
#include "sinew/rpc/base/json_text.h"

namespace sinew::internal {
namespace {

enum class Form { kText, kJson, kNone };

Form form_of_process() {
  static const Form form = [] {
    const std::string said = process_environment()("SINEW_LOG").value_or("text");
    if (said == "json") return Form::kJson;
    if (said == "none") return Form::kNone;
    if (said != "text") {
      std::cerr << absl::StrCat("[sinew] SINEW_LOG is \"", printable(said, 128),
                                "\": text, json and none are known; it is text\n");
    }
    return Form::kText;
  }();
  return form;
}

std::string as_json_line(const std::string& worker, const std::string& text) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return absl::StrFormat("{\"time\":%d.%03d,\"worker\":\"%s\",\"text\":\"%s\"}\n",
                         now.count() / 1000, now.count() % 1000, json_text(worker),
                         json_text(printable(text)));
}

}  // namespace

void log_line(const std::string& worker, const std::string& text) {
  FlightRecorder::of_process().add("log", text);
  const Form form = form_of_process();
  if (form == Form::kNone) return;
  // One write, so that lines of several workers do not mix.
  std::cerr << (form == Form::kJson ? as_json_line(worker, text)
                                    : absl::StrCat("[sinew", worker.empty() ? "" : " ", worker,
                                                   "] ", indented(printable(text)), "\n"));
}

}  // namespace sinew::internal
