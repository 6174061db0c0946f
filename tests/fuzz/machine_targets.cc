// Scripts of messages for the machines that keep a state: the registrar's table and a link.

#include <algorithm>
#include <string>
#include <vector>

#include "sinew/link.pb.h"
#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/link/link.h"
#include "sinew/rpc/link/link_codec.h"
#include "sinew/rpc/membership/registrar/registry_codec.h"
#include "sinew/rpc/membership/registry/registry_table.h"
#include "sinew/tests/fuzz/script.h"
#include "sinew/tests/fuzz/target.h"

namespace sinew::fuzz {

std::vector<std::string> questions();

namespace {

using namespace sinew::internal;

// ---- The table.

std::vector<std::string> table_scripts() {
  std::string all;
  std::string two;
  for (const std::string& question : questions()) {
    add_step(all, 42, question);
    add_step(two, 42, question);
    add_step(two, 41, question);
  }
  return {all, two + all};
}

bool feed_table(std::string_view script) {
  registry::Options options;
  options.registrar = {9};
  options.job = "job";
  options.settle = registry::Time(0);
  registry::Time now = std::chrono::hours(1);
  registry::RegistryTable table(options, now);
  registry::Version last = table.roster().list().version;
  bool taken = false;
  for (Step step; next_step(script, step);) {
    now += std::chrono::milliseconds(50);
    registry::Effects effects;
    if (const auto asked = decode_asked(std::string(step.bytes)); asked.ok()) {
      effects = table.handle(Incarnation{step.what}, asked->echo, asked->request, now);
      taken = true;
    } else {
      effects = table.tick(now);
    }
    for (const registry::Send& each : effects) {
      SaidByRegistrar said;
      said.registrar = {9};
      said.lease = options.lease;
      said.items = {{each.token, each.answer}};
      expect(decode_said(encode(said)).ok(), "what the table says can be read");
    }
    const registry::Version version = table.roster().list().version;
    expect(
        version.epoch > last.epoch || (version.epoch == last.epoch && version.count >= last.count),
        "versions never go back");
    last = version;
  }
  return taken;
}

// ---- The link.

enum class Happens : std::uint8_t { kOffer, kUp, kFrame, kAnnounced, kDown, kTime, kSend, kLast };

constexpr Incarnation kSelf{5};
constexpr Incarnation kPeer{6};

std::string hello_of(std::uint64_t attempt) {
  LinkHello hello;
  hello.connection = {kPeer, attempt};
  proto::Hello message;
  write_link_hello(hello, message);
  return message.SerializeAsString();
}

std::string header_of(FrameKind kind, std::uint64_t number) {
  LinkHeader header;
  header.kind = kind;
  header.number = number;
  header.received[0] = {{1, 1}};
  const HeaderBytes bytes = write_header(header);
  return {bytes.data(), bytes.size()};
}

std::vector<std::string> link_scripts() {
  const auto code = [](Happens what) { return static_cast<std::uint8_t>(what); };
  std::string script;
  add_step(script, code(Happens::kOffer), hello_of(1));
  add_step(script, code(Happens::kUp), hello_of(1));
  add_step(script, code(Happens::kFrame), header_of(FrameKind::kRequest, 1));
  add_step(script, code(Happens::kAnnounced), header_of(FrameKind::kRequest, 2));
  add_step(script, code(Happens::kFrame), header_of(FrameKind::kControl, 1));
  add_step(script, code(Happens::kSend), "");
  add_step(script, code(Happens::kTime), "");
  add_step(script, code(Happens::kFrame), header_of(FrameKind::kRequest, 2));
  add_step(script, code(Happens::kDown), "");
  add_step(script, code(Happens::kOffer), hello_of(2));
  return {script};
}

class LinkOfStrangers {
 public:
  bool run(std::string_view script) {
    bool taken = false;
    for (Step step; next_step(script, step);) {
      now_ += std::chrono::milliseconds(20);
      taken = happen(step) || taken;
      expect(link_.lanes().frames() <= sent_, "only what was sent is kept");
    }
    return taken;
  }

 private:
  bool happen(const Step& step) {
    Link::Outputs outputs;
    switch (static_cast<Happens>(step.what % static_cast<std::uint8_t>(Happens::kLast))) {
      case Happens::kOffer:
      case Happens::kUp:
        return meet(step, outputs);
      case Happens::kFrame:
      case Happens::kAnnounced:
        return hear(step, outputs);
      case Happens::kDown:
        link_.on_down(connection_, DownCause::kBroken, Refusal::kNone, false, now_, outputs);
        return true;
      case Happens::kTime:
        now_ += std::chrono::milliseconds(500);
        link_.poll(now_, outputs);
        return true;
      case Happens::kSend:
      case Happens::kLast:
        break;
    }
    if (link_.ended()) return false;
    link_.send(OutgoingFrame(), now_, outputs);
    ++sent_;
    return true;
  }

  bool meet(const Step& step, Link::Outputs& outputs) {
    proto::Hello message;
    if (!message.ParseFromArray(step.bytes.data(), static_cast<int>(step.bytes.size()))) {
      return false;
    }
    const absl::StatusOr<LinkHello> hello = read_link_hello(message, kPeer);
    if (!hello.ok()) return false;
    if (link_.on_offer(*hello, now_, outputs) == Refusal::kNone) {
      connection_ = hello->connection;
    } else {
      // As a transport does, which brings one up that was accepted, once.
      if (link_.state() != Link::State::kAccepted) return false;
      link_.on_up(connection_, *hello, now_, outputs);
    }
    return true;
  }

  bool hear(const Step& step, Link::Outputs& outputs) {
    LinkHeader header;
    if (!read_header({step.bytes.data(), step.bytes.size()}, header).ok()) return false;
    if (static_cast<Happens>(step.what % static_cast<std::uint8_t>(Happens::kLast)) ==
        Happens::kAnnounced) {
      return link_.announce(connection_, header, 1000);
    }
    const auto delivery = link_.on_frame(connection_, header, 1000, now_, outputs);
    return delivery == LinkLanes::Delivery::kDeliver;
  }

  Link::TimePoint now_{std::chrono::hours(1)};
  Link link_{{kSelf, kPeer, {}, {}}, now_};
  ConnectionName connection_;
  std::size_t sent_ = 0;
};

bool feed_link(std::string_view script) { return LinkOfStrangers().run(script); }

}  // namespace

std::vector<Target> machine_targets() {
  return {{"registry_table", table_scripts, feed_table}, {"link", link_scripts, feed_link}};
}

std::vector<Target> all_targets() {
  std::vector<Target> all;
  for (const auto& some :
       {connection_targets(), job_targets(), text_targets(), machine_targets(), layer_targets()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace sinew::fuzz
