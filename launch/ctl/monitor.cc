#include "sinew/launch/ctl/monitor.h"

#include <atomic>
#include <chrono>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "httplib.h"
#include "openssl/crypto.h"
#include "sinew/launch/ctl/json.h"
#include "sinew/launch/ctl/metrics.h"
#include "sinew/launch/ctl/page.h"
#include "sinew/launch/ctl/stuck.h"
#include "sinew/rpc/base/stop_signal.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"

namespace sinew::internal {
namespace {

// However many look: workers are asked once in that time.
constexpr std::chrono::milliseconds kFresh(500);
constexpr std::chrono::microseconds kPatience = std::chrono::seconds(1);
constexpr std::chrono::milliseconds kSoon(1);

bool is_equal(absl::string_view a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), b.size()) == 0;
}

/// Whether that value of the header Authorization shows the token: as Prometheus sends it, or a
/// browser that has asked for a password.
bool shows_token(const std::string& authorization, const std::string& token) {
  absl::string_view rest = authorization;
  if (absl::ConsumePrefix(&rest, "Bearer ")) return is_equal(rest, token);
  std::string decoded;
  if (!absl::ConsumePrefix(&rest, "Basic ") || !absl::Base64Unescape(rest, &decoded)) return false;
  const std::size_t colon = decoded.find(':');
  return colon != std::string::npos &&
         is_equal(absl::string_view(decoded).substr(colon + 1), token);
}

/// The latest answer to one question. Thread-safe.
class Answer {
 public:
  using Make = absl::StatusOr<std::string> (*)(const JobAccess& access);

  Answer(const JobAccess& access, Make make) : access_(access), make_(make) {}

  absl::StatusOr<std::string> get() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (!text_.has_value() || now - made_at_ >= kFresh) {
      text_ = make_(access_);
      made_at_ = std::chrono::steady_clock::now();
    }
    return *text_;
  }

 private:
  const JobAccess& access_;
  const Make make_;
  std::mutex mutex_;
  std::optional<absl::StatusOr<std::string>> text_;
  std::chrono::steady_clock::time_point made_at_;
};

absl::StatusOr<std::string> state_json(const JobAccess& access) {
  const absl::StatusOr<JobView> job = ask_job(
      access, {"links", "served_calls", "references", "contexts", "names", "groups", "methods"});
  if (!job.ok()) return job.status();
  return as_json(*job);
}

absl::StatusOr<std::string> stuck_json(const JobAccess& access) {
  const absl::StatusOr<std::vector<Finding>> found = look_for_stuck(access, kPatience);
  if (!found.ok()) return found.status();
  return as_json(*found);
}

absl::StatusOr<std::string> metrics(const JobAccess& access) {
  const absl::StatusOr<JobView> job = ask_job(access, metrics_wanted());
  if (!job.ok()) return job.status();
  return metrics_text(*job);
}

void add_paths(httplib::Server& server, const JobAccess& access) {
  const auto add = [&](const char* path, const char* type, Answer::Make make) {
    const auto answer = std::make_shared<Answer>(access, make);
    server.Get(path, [answer, type](const httplib::Request&, httplib::Response& response) {
      const absl::StatusOr<std::string> text = answer->get();
      response.status = text.ok() ? 200 : 503;
      response.set_content(
          text.ok() ? *text : absl::StrCat(std::string(text.status().message()), "\n"),
          text.ok() ? type : "text/plain; charset=utf-8");
    });
  };
  add("/state.json", "application/json", &state_json);
  add("/stuck.json", "application/json", &stuck_json);
  add("/metrics", "text/plain; version=0.0.4; charset=utf-8", &metrics);
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_content(kPage, "text/html; charset=utf-8");
  });
}

/// Without a token a browser must not be led here by another site's name for this address.
bool names_loopback(const std::string& host) {
  absl::StatusOr<HostPort> named = parse_host_port(host);
  if (!named.ok()) named = parse_host_port(host + ":0");
  return named.ok() && named->is_loopback();
}

void refuse(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text, "text/plain; charset=utf-8");
}

}  // namespace

absl::Status serve_monitor(const JobAccess& access, const std::string& bind, MonitorFor who) {
  const absl::StatusOr<HostPort> address = parse_host_port(bind);
  if (!address.ok()) return address.status();
  const std::string token = access.client.token;
  if (token.empty() && !address->is_loopback() && who != MonitorFor::kEverybody) {
    return absl::PermissionDeniedError(absl::StrCat(
        "--bind ", bind,
        " is no loopback address, and the job has no token that a viewer must know: set "
        "SINEW_JOB_TOKEN or SINEW_JOB_TOKEN_FILE, or give --for-everybody"));
  }
  httplib::Server server;
  const bool is_open = who == MonitorFor::kEverybody;
  server.set_pre_routing_handler([&token, is_open](const httplib::Request& request,
                                                   httplib::Response& response) {
    // No other site may embed or read what the page shows.
    response.set_header("X-Frame-Options", "DENY");
    response.set_header("Content-Security-Policy",
                        "default-src 'none'; style-src 'unsafe-inline'; script-src "
                        "'unsafe-inline'; connect-src 'self'");
    response.set_header("Cache-Control", "no-store");
    if (token.empty()) {
      const std::string host = request.get_header_value("Host");
      if (is_open || names_loopback(host)) return httplib::Server::HandlerResponse::Unhandled;
      refuse(response, 403, absl::StrCat("'", host, "' is no name of this machine's loopback\n"));
    } else {
      if (shows_token(request.get_header_value("Authorization"), token)) {
        return httplib::Server::HandlerResponse::Unhandled;
      }
      response.set_header("WWW-Authenticate", "Basic realm=\"Sinew: the job's token as password\"");
      refuse(response, 401, "the job's token is wanted\n");
    }
    return httplib::Server::HandlerResponse::Handled;
  });
  add_paths(server, access);
  const int port = address->port == 0 ? server.bind_to_any_port(address->host) : address->port;
  if (port < 0 || (address->port != 0 && !server.bind_to_port(address->host, port))) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", bind));
  }
  std::atomic<bool> has_ended{false};
  const StopSignal stop([&] {
    // It may be asked before it has begun to listen, and would forget that.
    while (!server.is_running() && !has_ended) std::this_thread::sleep_for(kSoon);
    server.stop();
  });
  std::cout << "http://" << join_host_port(address->host, port) << "/ and /metrics" << std::endl;
  server.listen_after_bind();
  has_ended = true;
  return absl::OkStatus();
}

}  // namespace sinew::internal
