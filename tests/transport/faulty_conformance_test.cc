// A faulty transport without faults is a transport.

#include "sinew/tests/support/faulty_transport.h"
#include "sinew/tests/transport/inproc_fixture.h"

namespace sinew::internal {
namespace {

class FaultlessFixture final : public InprocFixture {
 public:
  std::unique_ptr<Transport> make(const Transport::Limits& limits) override {
    return make_faulty_transport(InprocFixture::make(limits), plan_);
  }

 private:
  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(/*seed=*/1);
};

INSTANTIATE_TEST_SUITE_P(Faulty, TransportConformance,
                         testing::Values(TransportKind{
                             "Faultless", [] { return std::make_unique<FaultlessFixture>(); }}),
                         conformance_name);

}  // namespace
}  // namespace sinew::internal
