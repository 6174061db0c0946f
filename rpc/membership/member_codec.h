#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/membership/contact.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/job_instance.h"

namespace sinew::internal {

/// Why a worker is no member any more.
struct LostMember {
  Incarnation incarnation;
  std::string reason;
};

/// The members at one version.
struct MemberView {
  std::uint64_t version = 0;
  int world_size = 0;
  /// Sorted by rank.
  std::vector<Member> members;
  /// Who said goodbye, the latest last. Others that are no members any more were lost.
  std::vector<Incarnation> left = {};
  /// Of the job.
  JobInstance instance = {};
  /// Of a fixed world: by rank, whom it had when it was complete for the first time. Empty before.
  std::vector<std::string> world_names = {};
  /// Those whose loss somebody could explain, the latest last.
  std::vector<LostMember> lost = {};
};

/// The member that is this process, whatever its rank; null if there is none.
const Member* find_process(const MemberView& view, const WorkerInfo& worker);

/// How a member came to be none.
enum class Departure { kLeft, kLost };

/// How certain the loss of a worker is.
enum class Proof {
  /// It does not answer, or has ended the link.
  kNone,
  /// Its process has ended.
  kEnded,
};

/// Remembers in `view` that a worker has left, at the cost of the one that left first when there
/// are too many.
void note_left(MemberView& view, Incarnation incarnation);
Departure how_departed(const MemberView& view, Incarnation incarnation);
/// Likewise remembers why one was lost; an empty reason is none.
void note_lost(MemberView& view, Incarnation incarnation, const std::string& reason);
/// Empty: nobody has said.
std::string reason_of_loss(const MemberView& view, Incarnation incarnation);

void encode(const Member& member, proto::Member& out);
void encode(const MemberView& view, proto::MemberList& out);
void encode(const JobInstance& instance, proto::JobInstance& out);

JobInstance decode(const proto::JobInstance& in);

/// Check everything: a name that is allowed, an incarnation, an address of sane length, a rank from
/// -1 (only members of a list must have one), devices that can be (256 at most). kInvalidArgument
/// names the culprit.
absl::StatusOr<Member> decode(const proto::Member& in);
/// Where somebody who is no member sends a joiner on to: an address of sane length, and a name that
/// is allowed, or none. kInvalidArgument names the culprit.
absl::StatusOr<Contact> decode_ask_at(const proto::JoinResponse& in);
/// Also: at most 65536 members, no name and no rank twice, at most 1024 that left, and as many
/// names of a fixed world as it has ranks, or none.
absl::StatusOr<MemberView> decode(const proto::MemberList& in);

/// `what` for the text: "a JoinRequest".
template <class Message>
absl::StatusOr<Message> parse_message(std::string_view what, const std::string& bytes) {
  Message message;
  if (message.ParseFromString(bytes)) return message;
  return absl::InvalidArgumentError(std::string(what) +
                                    " cannot be understood: its bytes are no such message");
}

}  // namespace sinew::internal
