#include "sinew/rpc/membership/etcd/etcd_errors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal::etcd {
namespace {

/// What etcd says, by a part of its words, which all versions share.
struct KnownError {
  absl::string_view words;
  Remedy remedy;
  absl::StatusCode code;
  absl::string_view meaning;
};

constexpr absl::string_view kNoUser = "user name is empty";

constexpr KnownError kKnown[] = {
    {"database space exceeded", Remedy::kNone, absl::StatusCode::kResourceExhausted,
     "is out of quota (NOSPACE alarm): compact and defragment it, or raise its "
     "--quota-backend-bytes, and then `etcdctl alarm disarm`"},
    {"invalid user ID or password", Remedy::kNone, absl::StatusCode::kUnauthenticated,
     "does not take this user and password: `etcdctl user passwd` sets one"},
    {"invalid auth token", Remedy::kAuthenticate, absl::StatusCode::kUnauthenticated,
     "does not take the token that it gave a moment ago: do its servers share one --auth-token?"},
    {"revision of auth store is old", Remedy::kAuthenticate, absl::StatusCode::kUnauthenticated,
     "has other users than a moment ago"},
    {kNoUser, Remedy::kNone, absl::StatusCode::kUnauthenticated,
     "wants a user and a password: set ETCDCTL_USER and ETCDCTL_PASSWORD"},
    {"permission denied", Remedy::kNone, absl::StatusCode::kPermissionDenied,
     "does not let this user touch these keys: `etcdctl role grant-permission ROLE readwrite "
     "--prefix PREFIX`"},
    {"request is too large", Remedy::kNone, absl::StatusCode::kInvalidArgument,
     "takes no request of that size: raise its --max-request-bytes"},
    {"too many operations in txn", Remedy::kNone, absl::StatusCode::kInvalidArgument,
     "takes no transaction of that size: raise its --max-txn-ops"},
    {"too many requests", Remedy::kAgain, absl::StatusCode::kUnavailable, "is overloaded"},
    {"no leader", Remedy::kOtherServer, absl::StatusCode::kUnavailable,
     "has no leader: most of its servers must see each other"},
    {"leader changed", Remedy::kOtherServer, absl::StatusCode::kUnavailable, "gets another leader"},
    {"request timed out", Remedy::kOtherServer, absl::StatusCode::kUnavailable,
     "gets no majority of its servers in time"},
    {"server stopped", Remedy::kOtherServer, absl::StatusCode::kUnavailable, "stops"},
    {"corrupt", Remedy::kOtherServer, absl::StatusCode::kDataLoss,
     "has found its data corrupt (CORRUPT alarm): restore it"},
    // gRPC's own.
    {"Trying to connect an http1.x server", Remedy::kOtherServer, absl::StatusCode::kNotFound,
     "is no etcd that speaks gRPC: is that its client port, and does it want TLS?"},
    {"Ssl handshake failed", Remedy::kOtherServer, absl::StatusCode::kUnauthenticated,
     "cannot be reached by TLS: its certificate is not signed by our authority or not for this "
     "host, it does not take ours, or it speaks no TLS"},
    {"not in peer certificate", Remedy::kOtherServer, absl::StatusCode::kUnauthenticated,
     "shows a certificate for another host"},
    {"larger than max", Remedy::kNone, absl::StatusCode::kResourceExhausted,
     "answers with more than is taken here"},
};

absl::Status say(absl::StatusCode code, const std::string& endpoint, absl::string_view meaning,
                 absl::string_view words) {
  return absl::Status(code, absl::StrCat("etcd at ", endpoint, " ", meaning, " (",
                                         printable(std::string(words), 512), ")"));
}

bool is_connection_trouble(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded ||
         code == absl::StatusCode::kCancelled || code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kInternal || code == absl::StatusCode::kAborted;
}

}  // namespace

Failure explain_error(const absl::Status& error, const std::string& endpoint,
                      const EtcdOptions& options) {
  absl::string_view words = error.message();
  for (const KnownError& known : kKnown) {
    if (!absl::StrContains(words, known.words)) continue;
    absl::ConsumePrefix(&words, "etcdserver: ");
    // Authentication was enabled at etcd after this worker connected.
    const bool has_user = known.words == kNoUser && !options.user.empty();
    return {has_user ? Remedy::kAuthenticate : known.remedy,
            say(known.code, endpoint, known.meaning, words)};
  }
  if (error.code() == absl::StatusCode::kUnimplemented) {
    return {Remedy::kOtherServer,
            say(absl::StatusCode::kNotFound, endpoint,
                "is no etcd: what answers there speaks gRPC, but not etcd's API v3", words)};
  }
  if (error.code() == absl::StatusCode::kDeadlineExceeded) {
    return {Remedy::kOtherServer,
            say(absl::StatusCode::kUnavailable, endpoint, "does not answer", words)};
  }
  if (is_connection_trouble(error.code())) {
    const bool may_want_tls =
        !options.tls.has_value() &&
        (absl::StrContains(words, "Socket closed") || absl::StrContains(words, "reset by peer"));
    return {Remedy::kOtherServer,
            say(absl::StatusCode::kUnavailable, endpoint,
                may_want_tls ? "cannot be reached: it has ended, or wants TLS "
                               "(ETCDCTL_CACERT)"
                             : "cannot be reached",
                words)};
  }
  absl::ConsumePrefix(&words, "etcdserver: ");
  return {Remedy::kNone, say(error.code(), endpoint, "refuses the request", words)};
}

}  // namespace sinew::internal::etcd
