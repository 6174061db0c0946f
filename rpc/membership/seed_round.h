#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/membership/job_instance.h"

namespace sinew::internal {

/// Whether somebody answered that this worker may not join.
inline bool is_refusal(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
}

/// One round of asking at all seed addresses at once whether the job is there. A seed may be a name
/// of several addresses, which differ from round to round. Pure; not thread-safe.
class SeedRound {
 public:
  /// What is asked of one seed, at most.
  static constexpr std::size_t kMostPerSeed = 16;

  /// What somebody says who answers.
  struct Greeting {
    /// Not valid: that is not known yet.
    JobInstance instance;
    bool waits_to_found = false;
  };

  /// Of so many seeds.
  explicit SeedRound(std::size_t seeds) : seeds_(seeds) {}

  /// What the seed at that place stands for, but for this worker's `own` address; or why that
  /// cannot be said. Returns the addresses to ask, each once in a round.
  std::vector<std::string> on_resolved(std::size_t seed,
                                       const absl::StatusOr<std::vector<std::string>>& addresses,
                                       const std::string& own);
  /// kNotFound: nobody is there. Of several answers the first counts.
  void on_answer(const std::string& address, const absl::StatusOr<Greeting>& greeting);

  bool is_done() const;
  /// Where members of the job have answered, in the order of the seeds.
  std::vector<std::string> members() const;
  /// Members at two addresses that are not in the same job: kFailedPrecondition, naming both.
  absl::Status conflict() const;
  /// All have answered, and none but with a refusal for good (kPermissionDenied,
  /// kUnauthenticated): the first one.
  absl::Status refusal() const;
  std::size_t asked() const;
  /// The places where nobody is.
  std::size_t empty() const;
  /// "'host1:80' said: ...; 'host2:80' said: ..."; of three at most.
  std::string failures() const;

 private:
  struct Place {
    std::string address;
    std::optional<absl::StatusOr<Greeting>> answer;
  };
  struct Seed {
    bool is_resolved = false;
    absl::Status unknown;
    std::vector<Place> places;
  };
  bool asks(const std::string& address) const;

  std::vector<Seed> seeds_;
};

}  // namespace sinew::internal
