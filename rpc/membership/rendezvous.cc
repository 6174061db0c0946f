#include "sinew/rpc/membership/rendezvous.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/internal/launch_environment.h"
#include "sinew/rpc/base/internal/written_values.h"
#include "sinew/rpc/base/loopback.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/membership/etcd_membership.h"

namespace sinew {
namespace {

using absl::InvalidArgumentError;
using internal::shown;

// A worker asks all of them again and again.
constexpr std::size_t kMostSeeds = 16;

// Abseil's string_view is a type of its own where Abseil was built for C++14, as in Debian 12.
absl::string_view view(std::string_view text) { return {text.data(), text.size()}; }

struct Url {
  absl::string_view scheme;
  absl::string_view rest;
  std::optional<int> rank;
  std::optional<int> world_size;
};

absl::Status take_parameter(absl::string_view text, Url& url) {
  const std::pair<absl::string_view, absl::string_view> parameter =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  const bool is_rank = parameter.first == "rank";
  if (!is_rank && parameter.first != "world_size") {
    return InvalidArgumentError(absl::StrCat("the rendezvous URL has an unknown parameter ",
                                             internal::quoted(parameter.first),
                                             "; only rank and world_size can be given"));
  }
  std::optional<int>& target = is_rank ? url.rank : url.world_size;
  if (target) {
    return InvalidArgumentError(
        absl::StrCat("the rendezvous URL gives ", parameter.first, " twice; give it once"));
  }
  const absl::StatusOr<int> value = internal::parse_integer_of(
      absl::StrCat("the parameter ", parameter.first, " of the rendezvous URL"), parameter.second);
  if (!value.ok()) return value.status();
  target = *value;
  return absl::OkStatus();
}

absl::StatusOr<Url> split_url(absl::string_view text) {
  const std::size_t colon = text.find("://");
  if (colon == absl::string_view::npos) {
    return InvalidArgumentError(
        absl::StrCat("the rendezvous ", internal::quoted(text),
                     " is no URL; write env://, tcp://host:port, file:///path, "
                     "etcd://host:port/prefix or inproc://name"));
  }
  Url url;
  url.scheme = text.substr(0, colon);
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text.substr(colon + 3), absl::MaxSplits('?', 1));
  url.rest = parts.first;
  if (parts.second.empty()) return url;
  for (const absl::string_view parameter : absl::StrSplit(parts.second, '&')) {
    const absl::Status taken = take_parameter(parameter, url);
    if (!taken.ok()) return taken;
  }
  return url;
}

absl::StatusOr<std::string> parse_address(absl::string_view text) {
  constexpr absl::string_view kWhat = "the host of the rendezvous URL";
  absl::string_view host;
  absl::string_view port;
  if (absl::StartsWith(text, "[")) {
    const std::size_t end = text.find("]:");
    if (end == absl::string_view::npos) {
      return InvalidArgumentError(absl::StrCat("the rendezvous address ", internal::quoted(text),
                                               " lacks \"]:port\"; write tcp://[address]:port"));
    }
    host = text.substr(1, end - 1);
    port = text.substr(end + 2);
  } else {
    const std::size_t colon = text.rfind(':');
    if (colon == absl::string_view::npos) {
      return InvalidArgumentError(absl::StrCat("the rendezvous address ", internal::quoted(text),
                                               " has no port; write tcp://host:port"));
    }
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (absl::StrContains(host, ':')) {
      return InvalidArgumentError(
          absl::StrCat("the rendezvous address ", internal::quoted(text),
                       " has more than one colon; write an IPv6 address in brackets: "
                       "tcp://[address]:port"));
    }
  }
  if (host.empty()) {
    return InvalidArgumentError(
        absl::StrCat(kWhat, " is missing in ", internal::quoted(text), "; write tcp://host:port"));
  }
  const absl::Status is_host = internal::check_host(kWhat, host);
  if (!is_host.ok()) return is_host;
  const absl::StatusOr<int> is_port =
      internal::parse_port_of("the port of the rendezvous URL", port);
  if (!is_port.ok()) return is_port.status();
  return std::string(text);
}

// What one host resolves to is asked at one port, so a port that any will do for cannot be found.
absl::Status check_seed(const std::string& seed, const std::vector<std::string>& before) {
  if (std::find(before.begin(), before.end(), seed) != before.end()) {
    return InvalidArgumentError(absl::StrCat("the rendezvous URL names ", internal::quoted(seed),
                                             " twice; name each address once"));
  }
  if (absl::EndsWith(seed, ":0")) {
    return InvalidArgumentError(absl::StrCat("the rendezvous address ", internal::quoted(seed),
                                             " is one of several and has port 0, which no worker "
                                             "can find; write the port"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> parse_seeds(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (parts.size() > kMostSeeds) {
    return InvalidArgumentError(absl::StrCat("the rendezvous URL names ", parts.size(),
                                             " addresses; name ", kMostSeeds, " at most"));
  }
  std::vector<std::string> seeds;
  for (const absl::string_view part : parts) {
    absl::StatusOr<std::string> seed = parse_address(part);
    if (!seed.ok()) return seed.status();
    if (parts.size() > 1) {
      if (absl::Status fits = check_seed(*seed, seeds); !fits.ok()) return fits;
    }
    seeds.push_back(*std::move(seed));
  }
  return seeds;
}

int hex_value(char c) {
  if (absl::ascii_isdigit(static_cast<unsigned char>(c))) return c - '0';
  return absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
}

absl::StatusOr<std::string> percent_decoded(absl::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded.push_back(text[i]);
      continue;
    }
    const bool is_escape = i + 2 < text.size() &&
                           absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                           absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]));
    if (!is_escape) {
      return InvalidArgumentError(
          absl::StrCat("the path of the rendezvous URL, ", internal::quoted(text),
                       ", has a '%' without two hexadecimal digits; write %25 for a percent sign"));
    }
    decoded.push_back(static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2])));
    i += 2;
  }
  return decoded;
}

absl::StatusOr<std::string> parse_path(absl::string_view text) {
  if (text.empty()) {
    return InvalidArgumentError(
        "the rendezvous URL file:// has no path; write file:///absolute/path");
  }
  if (text.front() != '/') {
    return InvalidArgumentError(
        absl::StrCat("the rendezvous URL file://", shown(text),
                     " has a host or a relative path; write three slashes and an absolute path: "
                     "file:///absolute/path"));
  }
  absl::StatusOr<std::string> path = percent_decoded(text);
  if (!path.ok()) return path;
  if (path->find('\0') != std::string::npos) {
    return InvalidArgumentError("the path of the rendezvous URL has a NUL byte; leave out %00");
  }
  if (path->back() == '/') {
    return InvalidArgumentError(absl::StrCat("the path of the rendezvous URL, ",
                                             internal::quoted(*path),
                                             ", names a folder; name a file in it"));
  }
  return path;
}

absl::StatusOr<std::string> environment_address(const internal::LaunchEnvironment& launch) {
  const absl::StatusOr<std::string> host = launch.master_address();
  if (!host.ok()) return host;
  const absl::StatusOr<int> port = launch.master_port();
  if (!port.ok()) return port.status();
  const bool is_ipv6 = absl::StrContains(*host, ':');
  return is_ipv6 ? absl::StrCat("[", *host, "]:", *port) : absl::StrCat(*host, ":", *port);
}

absl::StatusOr<std::optional<int>> either(absl::string_view what, std::optional<int> from_url,
                                          std::optional<int> from_argument) {
  if (from_url && from_argument) {
    return InvalidArgumentError(absl::StrCat(what,
                                             " is given in the rendezvous URL and as an argument; "
                                             "give it in one place"));
  }
  return from_url ? from_url : from_argument;
}

absl::StatusOr<std::string> parse_inproc_name(absl::string_view text) {
  if (text.empty()) {
    return InvalidArgumentError("the rendezvous URL inproc:// has no name; write inproc://name");
  }
  for (const char c : text) {
    if (internal::is_name_character(c)) continue;
    return InvalidArgumentError(absl::StrCat("the rendezvous name ", internal::quoted(text),
                                             " has a character other than letters, digits and "
                                             "'_', '.', ':', '-'"));
  }
  return std::string(text);
}

absl::Status take_only_seed(absl::StatusOr<std::string> seed, Rendezvous& rendezvous) {
  if (!seed.ok()) return seed.status();
  rendezvous.seeds = {*std::move(seed)};
  return absl::OkStatus();
}

absl::Status fill_location(const Url& url, Rendezvous& rendezvous) {
  if (url.scheme == "tcp") {
    absl::StatusOr<std::vector<std::string>> seeds = parse_seeds(url.rest);
    if (!seeds.ok()) return seeds.status();
    rendezvous.seeds = *std::move(seeds);
    return absl::OkStatus();
  }
  if (url.scheme == "file") {
    rendezvous.kind = Rendezvous::Kind::kFile;
    absl::StatusOr<std::string> path = parse_path(url.rest);
    if (!path.ok()) return path.status();
    rendezvous.path = *std::move(path);
    return absl::OkStatus();
  }
  if (url.scheme == "inproc") {
    rendezvous.kind = Rendezvous::Kind::kInproc;
    return take_only_seed(parse_inproc_name(url.rest), rendezvous);
  }
  if (url.scheme == "etcd") {
    rendezvous.kind = Rendezvous::Kind::kEtcd;
    return internal::read_etcd_url(absl::StrCat("etcd://", url.rest), rendezvous);
  }
  return InvalidArgumentError(
      absl::StrCat("the rendezvous scheme ", internal::quoted(url.scheme),
                   " is unknown; write env://, tcp://host:port, file:///path, "
                   "etcd://host:port/prefix or inproc://name"));
}

enum class PlaceFrom { kUrlAndArguments, kEnvironment };

absl::Status check_place(const std::optional<int>& rank, const std::optional<int>& world_size,
                         PlaceFrom from) {
  if (world_size && *world_size < 0) {
    return InvalidArgumentError(absl::StrCat("the world size is ", *world_size,
                                             "; write the number of workers, or 0 for open "
                                             "membership"));
  }
  if (rank && *rank < 0) {
    return InvalidArgumentError(
        absl::StrCat("the rank is ", *rank, "; write a rank from 0, or none to be given one"));
  }
  const int size = world_size.value_or(0);
  if (size > 0 && !rank) {
    const std::string text = absl::StrCat("the world size is ", size, " but the rank is missing; ");
    if (from == PlaceFrom::kUrlAndArguments) {
      return InvalidArgumentError(absl::StrCat(text, "give a rank from 0 to ", size - 1));
    }
    return absl::NotFoundError(
        absl::StrCat(text, "set the environment variable RANK to 0 ... ", size - 1));
  }
  if (size > 0 && *rank >= size) {
    return InvalidArgumentError(absl::StrCat("the rank is ", *rank, " but the world size is ", size,
                                             "; ranks go from 0 to ", size - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<Rendezvous> take_place(Rendezvous rendezvous, std::optional<int> rank,
                                      std::optional<int> world_size, PlaceFrom from) {
  const absl::Status checked = check_place(rank, world_size, from);
  if (!checked.ok()) return checked;
  rendezvous.rank = rank.value_or(-1);
  rendezvous.world_size = world_size.value_or(0);
  return rendezvous;
}

absl::StatusOr<Rendezvous> environment_rendezvous(const Url& url, std::optional<int> rank,
                                                  std::optional<int> world_size,
                                                  const EnvironmentReader& environment) {
  if (!url.rest.empty()) {
    return InvalidArgumentError(absl::StrCat("the rendezvous URL env:// takes no ",
                                             internal::quoted(url.rest), "; write env:// alone"));
  }
  const absl::StatusOr<internal::LaunchEnvironment> launch =
      internal::LaunchEnvironment::read(environment, rank, world_size);
  if (!launch.ok()) return launch.status();
  Rendezvous rendezvous;
  const absl::Status taken = take_only_seed(environment_address(*launch), rendezvous);
  if (!taken.ok()) return taken;
  return take_place(std::move(rendezvous), launch->rank(), launch->world_size(),
                    PlaceFrom::kEnvironment);
}

}  // namespace

absl::StatusOr<Rendezvous> parse_rendezvous(std::string_view url_text, std::optional<int> rank,
                                            std::optional<int> world_size,
                                            const EnvironmentReader& environment) {
  const absl::StatusOr<Url> url = split_url(view(url_text));
  if (!url.ok()) return url.status();
  const absl::StatusOr<std::optional<int>> my_rank = either("the rank", url->rank, rank);
  if (!my_rank.ok()) return my_rank.status();
  const absl::StatusOr<std::optional<int>> size =
      either("the world size", url->world_size, world_size);
  if (!size.ok()) return size.status();
  if (url->scheme == "env") return environment_rendezvous(*url, *my_rank, *size, environment);
  Rendezvous rendezvous;
  const absl::Status filled = fill_location(*url, rendezvous);
  if (!filled.ok()) return filled;
  return take_place(std::move(rendezvous), *my_rank, *size, PlaceFrom::kUrlAndArguments);
}

namespace internal {

absl::StatusOr<bool> founds_job(const Rendezvous& rendezvous, std::optional<FoundJob> found_job) {
  const bool fixed = rendezvous.world_size > 0;
  if (fixed && found_job == FoundJob::kAlways) {
    return InvalidArgumentError(
        "WorkerOptions::found_job is kAlways in a fixed world, which its rank 0 founds; leave it "
        "unset");
  }
  const bool one_place = rendezvous.kind != Rendezvous::Kind::kTcp;
  switch (found_job.value_or(!fixed && one_place ? FoundJob::kAlways : FoundJob::kRankZero)) {
    case FoundJob::kRankZero:
      return rendezvous.rank == 0;
    case FoundJob::kAlways:
      return true;
    case FoundJob::kNever:
      return false;
  }
  return InvalidArgumentError("WorkerOptions::found_job is none of the values of FoundJob");
}

std::vector<std::string> dial_addresses(const Rendezvous& rendezvous) {
  std::vector<std::string> addresses = rendezvous.seeds;
  if (rendezvous.kind == Rendezvous::Kind::kInproc) {
    for (std::string& address : addresses) address = absl::StrCat("inproc://", address);
  }
  return addresses;
}

std::string loopback_hint(const Rendezvous& rendezvous) {
  if (rendezvous.kind != Rendezvous::Kind::kTcp) return "";
  for (const std::string& seed : rendezvous.seeds) {
    std::string host = seed.substr(0, seed.rfind(':'));
    if (!host.empty() && host.front() == '[') host = host.substr(1, host.size() - 2);
    if (!is_loopback(host)) continue;
    return absl::StrCat("; ", host,
                        " is each machine's own loopback: where workers are to come from other "
                        "machines too, give all of them the name or the address of the one with "
                        "rank 0 (MASTER_ADDR)");
  }
  return "";
}

}  // namespace internal
}  // namespace sinew
