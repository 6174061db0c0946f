#include "sinew/examples/common/credentials.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace examples {
namespace {

constexpr char kCertificates[] = "SINEW_EXAMPLES_CERTIFICATES";
constexpr char kTrustedNetwork[] = "SINEW_EXAMPLES_TRUSTED_NETWORK";

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() { forget(); }
  ~CredentialsTest() override { forget(); }

  static void say(const char* variable, const std::string& value) {
    setenv(variable, value.c_str(), 1);
  }
  static std::string error() {
    try {
      credentials_of("worker");
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  }

 private:
  static void forget() {
    unsetenv(kCertificates);
    unsetenv(kTrustedNetwork);
  }
};

TEST_F(CredentialsTest, WithoutAWordWorkersStayOnLoopback) {
  EXPECT_TRUE(credentials_of("worker").loopback_only());
  EXPECT_FALSE(is_network_trusted());
  // As those of a file that leaves them open.
  say(kCertificates, "");
  say(kTrustedNetwork, "");
  EXPECT_TRUE(credentials_of("worker").loopback_only());
  say(kTrustedNetwork, "0");
  EXPECT_TRUE(credentials_of("worker").loopback_only());
}

TEST_F(CredentialsTest, ATrustedNetworkNeedsNoProofs) {
  say(kTrustedNetwork, "1");
  EXPECT_TRUE(is_network_trusted());
  EXPECT_FALSE(credentials_of("worker").loopback_only());
  EXPECT_FALSE(credentials_of("worker").uses_tls());
}

TEST_F(CredentialsTest, CertificatesAreThoseOfTheWorker) {
  say(kCertificates, "/nowhere");
  const sinew::Credentials credentials = credentials_of("learner");
  EXPECT_TRUE(credentials.proves_callers());
  const std::string problem(credentials.check().message());
  EXPECT_NE(problem.find("/nowhere/"), std::string::npos) << problem;
}

TEST_F(CredentialsTest, MistakesNameTheVariable) {
  say(kTrustedNetwork, "yes");
  EXPECT_EQ(error(), "SINEW_EXAMPLES_TRUSTED_NETWORK is 'yes'; set it to 1, or not at all");
  say(kTrustedNetwork, "1");
  say(kCertificates, "/nowhere");
  EXPECT_EQ(
      error(),
      "SINEW_EXAMPLES_CERTIFICATES and SINEW_EXAMPLES_TRUSTED_NETWORK are both set; leave one "
      "out");
}

}  // namespace
}  // namespace examples
