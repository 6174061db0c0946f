#include <random>

#include "sinew/tests/transport/inproc_fixture.h"

namespace sinew::internal {
namespace {

std::unique_ptr<TransportFixture> plain() { return std::make_unique<InprocFixture>(); }

/// Events happen in any order that is allowed, frame by frame.
std::unique_ptr<TransportFixture> shuffled() {
  constexpr std::uint64_t kSeed = 20240917;
  auto fixture = std::make_unique<InprocFixture>();
  fixture->network().set_max_frames_per_event(1);
  fixture->network().set_chooser(
      [random = std::mt19937_64(kSeed)](const std::vector<InprocEvent>& events) mutable {
        return static_cast<std::size_t>(random() % events.size());
      });
  return fixture;
}

INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance,
                         testing::Values(TransportKind{"Plain", plain},
                                         TransportKind{"Shuffled", shuffled, false}),
                         conformance_name);

}  // namespace
}  // namespace sinew::internal
