#include "sinew/rref/internal/ledger_codec.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/link/identity_codec.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxTypeName = 1024;

std::uint64_t to_us(std::chrono::nanoseconds duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, duration.count()) / 1000);
}

// The ledger caps it further; this only keeps the conversion from overflowing.
std::chrono::nanoseconds from_us(std::uint64_t duration_us) {
  constexpr std::uint64_t kDay = std::uint64_t{24} * 3600 * 1000000;
  return std::chrono::microseconds(std::min(duration_us, kDay));
}

absl::StatusOr<ledger::Token> read_token(const std::string& bytes) {
  ledger::Token token{};
  if (bytes.empty()) return token;
  if (bytes.size() != token.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a reference's token has %d bytes instead of %d", bytes.size(), token.size()));
  }
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(token.data()));
  return token;
}

std::string token_bytes(const ledger::Token& token) {
  return std::string(reinterpret_cast<const char*>(token.data()), token.size());
}

struct MessageWriter {
  proto::LedgerMessage& out;

  void operator()(const ledger::Claim& m) const {
    write_id(m.rref, *out.mutable_claim()->mutable_rref());
    write_id(m.fork, *out.mutable_claim()->mutable_fork());
  }
  void operator()(const ledger::AddFork& m) const {
    proto::LedgerAddFork& body = *out.mutable_add_fork();
    write_id(m.rref, *body.mutable_rref());
    write_id(m.parent, *body.mutable_parent());
    write_id(m.child, *body.mutable_child());
    body.set_token(token_bytes(m.token));
  }
  void operator()(const ledger::ForkAdded& m) const {
    write_id(m.rref, *out.mutable_fork_added()->mutable_rref());
    write_id(m.child, *out.mutable_fork_added()->mutable_child());
  }
  void operator()(const ledger::ForkRefused& m) const {
    proto::LedgerForkRefused& body = *out.mutable_fork_refused();
    write_id(m.rref, *body.mutable_rref());
    write_id(m.child, *body.mutable_child());
    body.set_code(static_cast<int>(m.reason.code()));
    body.set_reason(printable(std::string(m.reason.message())));
  }
  void operator()(const ledger::ChildDone& m) const {
    write_id(m.child, *out.mutable_child_done()->mutable_child());
  }
  void operator()(const ledger::Delete& m) const {
    proto::LedgerDelete& body = *out.mutable_delete_fork();
    write_id(m.rref, *body.mutable_rref());
    write_id(m.fork, *body.mutable_fork());
    body.set_may_arrive_for_us(to_us(m.may_arrive_for));
  }
  void operator()(const ledger::AskClaim& m) const {
    proto::LedgerAskClaim& body = *out.mutable_ask_claim();
    write_id(m.rref, *body.mutable_rref());
    write_id(m.fork, *body.mutable_fork());
    body.set_may_arrive_for_us(to_us(m.may_arrive_for));
  }
  void operator()(const ledger::AskChild& m) const {
    write_id(m.child, *out.mutable_ask_child()->mutable_child());
    out.mutable_ask_child()->set_may_arrive_for_us(to_us(m.may_arrive_for));
  }
};

}  // namespace

void write_id(Incarnation creator, std::uint64_t serial, std::uint64_t secret,
              proto::GlobalId& out) {
  out.set_creator(creator.value);
  out.set_serial(serial);
  out.set_secret(secret);
}

void write_record(const ledger::ForkRecord& record, proto::Reference& out) {
  write_identity(record.owner, *out.mutable_owner());
  write_id(record.rref, *out.mutable_rref());
  write_id(record.fork, *out.mutable_fork());
  if (!record.parent.empty()) {
    write_id(record.parent, *out.mutable_parent());
    out.set_token(token_bytes(record.token));
  }
  out.set_type_name(record.type_name);
}

absl::StatusOr<ledger::ForkRecord> read_record(const proto::Reference& reference) {
  absl::StatusOr<ledger::Token> token = read_token(reference.token());
  if (!token.ok()) return token.status();
  ledger::ForkRecord record;
  record.owner = read_identity(reference.owner());
  record.rref = read_id<RRefId>(reference.rref());
  record.fork = read_id<ForkId>(reference.fork());
  record.parent = read_id<ForkId>(reference.parent());
  record.token = *token;
  record.type_name = printable(reference.type_name(), kMaxTypeName);
  return record;
}

void write_message(const ledger::LedgerMessage& message, proto::LedgerMessage& out) {
  std::visit(MessageWriter{out}, message);
}

absl::StatusOr<ledger::LedgerMessage> read_message(const proto::LedgerMessage& message) {
  using Body = proto::LedgerMessage;
  switch (message.body_case()) {
    case Body::kClaim:
      return ledger::Claim{read_id<RRefId>(message.claim().rref()),
                           read_id<ForkId>(message.claim().fork())};
    case Body::kAddFork: {
      const proto::LedgerAddFork& body = message.add_fork();
      absl::StatusOr<ledger::Token> token = read_token(body.token());
      if (!token.ok()) return token.status();
      return ledger::AddFork{read_id<RRefId>(body.rref()), read_id<ForkId>(body.parent()),
                             read_id<ForkId>(body.child()), *token};
    }
    case Body::kForkAdded:
      return ledger::ForkAdded{read_id<RRefId>(message.fork_added().rref()),
                               read_id<ForkId>(message.fork_added().child())};
    case Body::kForkRefused: {
      const proto::LedgerForkRefused& body = message.fork_refused();
      const bool known =
          body.code() > 0 && body.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated);
      return ledger::ForkRefused{read_id<RRefId>(body.rref()), read_id<ForkId>(body.child()),
                                 absl::Status(known ? static_cast<absl::StatusCode>(body.code())
                                                    : absl::StatusCode::kUnknown,
                                              printable(body.reason()))};
    }
    case Body::kChildDone:
      return ledger::ChildDone{read_id<ForkId>(message.child_done().child())};
    case Body::kDeleteFork:
      return ledger::Delete{read_id<RRefId>(message.delete_fork().rref()),
                            read_id<ForkId>(message.delete_fork().fork()),
                            from_us(message.delete_fork().may_arrive_for_us())};
    case Body::kAskClaim:
      return ledger::AskClaim{read_id<RRefId>(message.ask_claim().rref()),
                              read_id<ForkId>(message.ask_claim().fork()),
                              from_us(message.ask_claim().may_arrive_for_us())};
    case Body::kAskChild:
      return ledger::AskChild{read_id<ForkId>(message.ask_child().child()),
                              from_us(message.ask_child().may_arrive_for_us())};
    case Body::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a control message about references has no content");
}

}  // namespace sinew::internal
