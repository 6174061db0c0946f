// What layers say to each other: references, the store of groups, NCCL's control messages; and what
// etcd tells of a job.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sinew/groups/internal/store_frames.h"
#include "sinew/rpc/membership/etcd/etcd_list.h"
#include "sinew/rpc/planes/nccl/internal/messages.h"
#include "sinew/rref/internal/ledger.h"
#include "sinew/rref/internal/ledger_codec.h"
#include "sinew/tests/fuzz/script.h"
#include "sinew/tests/fuzz/target.h"

namespace sinew::fuzz {
namespace {

using namespace sinew::internal;
using std::chrono::seconds;

// ---- References: a ledger with a value of its own that it has shared, and one of another's.

const WorkerInfo kWorker{"self", 0, {5}};
const WorkerInfo kHolder{"peer", 1, {6}};
const WorkerInfo kThird{"other", 2, {7}};

enum class Tells : std::uint8_t { kMessage, kRecord, kTime, kLast };

ledger::LedgerOptions with_known_secrets(std::uint64_t first) {
  ledger::LedgerOptions options;
  options.draw_secret = [next = first]() mutable { return next++; };
  return options;
}

/// The same ids in each run.
class References {
 public:
  References() {
    own_ = self_.own(ledger::ValueState::kReady, {});
    const auto shared = self_.share_owned(own_, kHolder, std::nullopt);
    expect(shared.ok(), "a value can be shared");
    given_ = *shared;
    const RRefId theirs = peer_.own(ledger::ValueState::kReady, {});
    received_ = *peer_.share_owned(theirs, kWorker, std::nullopt);
  }

  std::vector<std::string> seeds() {
    std::string script;
    add(script, ledger::Claim{own_, given_.fork});
    proto::Reference record;
    write_record(received_, record);
    add_step(script, code(Tells::kRecord), record.SerializeAsString());
    add(script, ledger::AskClaim{received_.rref, received_.fork, seconds(1)});
    add(script,
        ledger::AddFork{own_, ledger::public_part(given_.fork), {kThird.incarnation, 1, 99}});
    add(script, ledger::ForkAdded{received_.rref, ledger::public_part(received_.fork)});
    add(script, ledger::ForkRefused{received_.rref, received_.fork, absl::NotFoundError("none")});
    add(script, ledger::ChildDone{ledger::public_part(given_.fork)});
    add(script, ledger::AskChild{ledger::public_part(received_.fork), seconds(1)});
    add_step(script, code(Tells::kTime), "");
    add(script, ledger::Delete{own_, given_.fork, seconds(1)});
    return {script};
  }

  bool run(std::string_view script) {
    bool taken = false;
    for (Step step; next_step(script, step);) taken = tell(step) || taken;
    expect(!self_.authorise_use(own_, given_.fork, kThird).ok(),
           "what was given to one is not another's");
    for (const WorkerInfo& each : {kHolder, kThird})
      self_.worker_lost(each, now_).status.IgnoreError();
    for (const auto& received : kept_) {
      self_.release_user(received, now_).status.IgnoreError();
    }
    self_.release_owned(own_).status.IgnoreError();
    for (int i = 0; i < 1000 && !self_.quiescent(); ++i) {
      now_ += seconds(60);
      self_.tick(now_).status.IgnoreError();
    }
    expect(self_.quiescent(), "of those who are gone nothing stays");
    return taken;
  }

 private:
  static std::uint8_t code(Tells what) { return static_cast<std::uint8_t>(what); }
  static void add(std::string& script, const ledger::LedgerMessage& message) {
    proto::LedgerMessage written;
    write_message(message, written);
    add_step(script, code(Tells::kMessage), written.SerializeAsString());
  }

  bool tell(const Step& step) {
    const int size = static_cast<int>(step.bytes.size());
    const WorkerInfo& sender = step.what >= 128 ? kThird : kHolder;
    switch (static_cast<Tells>(step.what % code(Tells::kLast))) {
      case Tells::kMessage: {
        proto::LedgerMessage message;
        if (!message.ParseFromArray(step.bytes.data(), size)) return false;
        const auto read = read_message(message);
        if (!read.ok()) return false;
        return self_.handle(*read, sender, now_).status.ok();
      }
      case Tells::kRecord: {
        proto::Reference record;
        if (!record.ParseFromArray(step.bytes.data(), size)) return false;
        const auto read = read_record(record);
        if (!read.ok()) return false;
        const auto received = self_.receive(*read, sender, {}, now_);
        if (!received.result.ok()) return false;
        kept_.push_back(received.result->fork);
        return true;
      }
      case Tells::kTime:
      case Tells::kLast:
        break;
    }
    now_ += seconds(5);
    self_.tick(now_).status.IgnoreError();
    return true;
  }

  ledger::Time now_ = std::chrono::hours(1);
  ledger::Ledger self_{kWorker, with_known_secrets(1000)};
  ledger::Ledger peer_{kHolder, with_known_secrets(2000)};
  RRefId own_;
  ledger::ForkRecord given_;
  ledger::ForkRecord received_;
  std::vector<ForkId> kept_;
};

std::vector<std::string> reference_scripts() { return References().seeds(); }
bool feed_references(std::string_view script) { return References().run(script); }

// ---- The store of groups.

std::vector<std::string> store_frames() {
  proto::StoreFrame request;
  request.set_id(3);
  request.mutable_request()->set_kind(proto::StoreRequest::COMPARE_SET);
  request.mutable_request()->add_keys("key");
  request.mutable_request()->set_value("value");
  proto::StoreFrame reply;
  reply.set_id(3);
  reply.mutable_reply()->set_value("value");
  return {seal_frame(greeting_frame()) + seal_frame(request), seal_frame(reply)};
}

bool feed_store(std::string_view bytes) {
  FrameReader reader;
  bool taken = false;
  // As it may come, in two parts.
  for (const std::string_view part :
       {bytes.substr(0, bytes.size() / 2), bytes.substr(bytes.size() / 2)}) {
    reader.append(part.data(), part.size());
    while (true) {
      const auto frame = reader.next(kMaxStoreFrameBytes);
      if (!frame.ok()) return taken;
      if (!frame->has_value()) break;
      taken = true;
      check_greeting(**frame).IgnoreError();
      FrameReader again;
      const std::string sealed = seal_frame(**frame);
      again.append(sealed.data(), sealed.size());
      const auto read = again.next(kMaxStoreFrameBytes);
      expect(read.ok() && read->has_value() &&
                 (*read)->SerializeAsString() == (*frame)->SerializeAsString(),
             "a frame reads the same");
    }
  }
  return taken;
}

// ---- NCCL.

std::vector<std::string> nccl_notes() {
  namespace n = nccl;
  const n::LinkKey link{0, 1};
  return {n::encode({n::Offer{1, link, {4096, 17}, true}, n::Ready{1}, n::Accept{1},
                     n::Open{link, 1, 21805, std::string(128, 'i')}}),
          n::encode({n::Start{link, 1, 1, 1, n::Direction::kIncoming}, n::Done{1},
                     n::Retract{1, n::Direction::kOutgoing},
                     n::End{1, n::Direction::kIncoming, absl::CancelledError("no")},
                     n::Abort{link, 1, n::Cause::kStopped, "it ends"}})};
}

bool feed_nccl(std::string_view bytes) {
  const auto messages = nccl::decode(bytes);
  if (!messages.ok()) return false;
  // Links and directions are turned round each time.
  const auto turned = nccl::decode(nccl::encode(*messages));
  expect(turned.ok(), "what was read can be written");
  const auto again = nccl::decode(nccl::encode(*turned));
  expect(again.ok() && nccl::encode(*again) == nccl::encode(*messages), "a note reads the same");
  return true;
}

// ---- etcd.

const etcd::Layout& layout() {
  static const etcd::Layout layout("/jobs", "job");
  return layout;
}

std::string event_of(const std::string& key, const std::string& value, bool is_there = true) {
  etcd::Event event;
  event.set_type(is_there ? etcd::Event::PUT : etcd::Event::DELETE);
  event.mutable_kv()->set_key(key);
  event.mutable_kv()->set_value(value);
  event.mutable_kv()->set_mod_revision(7);
  return event.SerializeAsString();
}

std::vector<std::string> etcd_scripts() {
  std::string script;
  add_step(script, 0, event_of(layout().job(), etcd::encode_job("job", 2, {0, 1, 9})));
  for (const WorkerInfo& each : {kWorker, kHolder, kThird}) {
    add_step(script, 0,
             event_of(layout().member(each.incarnation), etcd::encode_member({each, "details"})));
  }
  add_step(script, 0, event_of(layout().report(kHolder.incarnation, kThird.incarnation), ""));
  add_step(script, 1, event_of(layout().member(kThird.incarnation), "", false));
  add_step(
      script, 0,
      event_of(layout().gone(kThird.incarnation), etcd::encode_gone(Gone::kSilent, "not heard")));
  add_step(script, 0, event_of(layout().gather("1f"), "ended"));
  return {script};
}

bool feed_etcd(std::string_view script) {
  etcd::Time now = std::chrono::hours(1);
  etcd::EtcdList list(layout(), {kWorker.incarnation, seconds(15), seconds(1)}, now);
  bool taken = false;
  std::size_t puts = 0;
  for (Step step; next_step(script, step);) {
    now += seconds(step.what % 2);
    etcd::Event event;
    if (!event.ParseFromArray(step.bytes.data(), static_cast<int>(step.bytes.size()))) continue;
    taken = true;
    ++puts;
    list.renewed(now, now);
    list.apply({event}, now);
    list.tick(now);
    expect(list.members().size() <= puts, "nobody is on the list who was not told of");
    for (const auto& [id, record] : list.members()) {
      expect(record.worker.incarnation == id, "members are who their keys say");
    }
  }
  return taken;
}

}  // namespace

std::vector<Target> layer_targets() {
  return {{"references", reference_scripts, feed_references},
          {"store_frames", store_frames, feed_store},
          {"nccl_note", nccl_notes, feed_nccl},
          {"etcd_list", etcd_scripts, feed_etcd}};
}

}  // namespace sinew::fuzz
