#pragma once

#include <string>

#include "gtest/gtest.h"
#include "sinew/rpc/transport/credentials.h"
#include "sinew/tests/support/certificates.h"

namespace sinew::testing {

enum class Security { kInsecure, kMutualTls };

/// Tests that run without certificates, and with one for each worker, which proves its name.
class SecuredTest : public ::testing::TestWithParam<Security> {
 protected:
  static bool proves_names() { return GetParam() == Security::kMutualTls; }
  Credentials credentials(const std::string& name) const {
    return proves_names() ? Credentials::mutual_tls(certificates_.issue(name))
                          : Credentials::insecure();
  }

 private:
  // Workers read their files for each connection that they open, also while they shut down.
  const Certificates certificates_;
};

}  // namespace sinew::testing

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage)
#define SINEW_INSTANTIATE_SECURED_TEST(Name)                                                   \
  INSTANTIATE_TEST_SUITE_P(                                                                    \
      With, Name,                                                                              \
      ::testing::Values(::sinew::testing::Security::kInsecure,                                 \
                        ::sinew::testing::Security::kMutualTls),                               \
      [](const auto& with) {                                                                   \
        return with.param == ::sinew::testing::Security::kInsecure ? "Insecure" : "MutualTls"; \
      })
