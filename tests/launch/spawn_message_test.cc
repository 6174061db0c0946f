#include "sinew/launch/internal/spawn_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "ATen/ATen.h"
#include "sinew/launch/internal/code_address.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/wire/codec.h"

/// What parent and child tell each other.
namespace sinew::testing {
namespace {

using ::testing::HasSubstr;

void do_nothing(int) {}

TEST(CodeAddress, IsFoundAgainInTheSameBuildOnly) {
  const auto function = reinterpret_cast<std::uintptr_t>(&do_nothing);
  const absl::StatusOr<internal::CodeAddress> code = internal::locate_code(function);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(code->module, "");
  EXPECT_EQ(internal::resolve_code(*code).value_or(0), function);

  internal::CodeAddress other = *code;
  other.build_id = "other";
  EXPECT_THAT(internal::resolve_code(other).status().message(), HasSubstr("built anew"));
  other = *code;
  other.offset = 1;
  EXPECT_FALSE(internal::resolve_code(other).ok());
  other = *code;
  other.module = "/lib/libnothing.so";
  EXPECT_THAT(internal::resolve_code(other).status().message(),
              HasSubstr("the library /lib/libnothing.so"));

  static const int kData = 1;
  EXPECT_EQ(internal::locate_code(reinterpret_cast<std::uintptr_t>(&kData)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SpawnMessage, RefusesWhatIsBroken) {
  internal::SpawnMessageWriter writer;
  {
    ValueWriter value = writer.next();
    Codec<at::Tensor>::encode(value, at::arange(10000));
  }
  const internal::FileDescriptor file(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_TRUE(writer.write(file.number(), 8).ok());
  absl::StatusOr<internal::SpawnMessageReader> reader =
      internal::SpawnMessageReader::open(file.number(), 8);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->size(), 1u);
  EXPECT_TRUE(Codec<at::Tensor>::decode(reader->value(0, "argument", 1)).equal(at::arange(10000)));
  EXPECT_THROW(reader->value(1, "argument", 2), RpcError);

  // Elsewhere, and with its end cut off at each place.
  EXPECT_FALSE(internal::SpawnMessageReader::open(file.number(), 0).ok());
  const off_t size = ::lseek(file.number(), 0, SEEK_END);
  for (off_t cut = size - 1; cut >= 0; cut -= cut > 200 ? 997 : 1) {
    ASSERT_EQ(::ftruncate(file.number(), cut), 0);
    EXPECT_EQ(internal::SpawnMessageReader::open(file.number(), 8).status().code(),
              absl::StatusCode::kDataLoss)
        << cut;
  }
}

}  // namespace
}  // namespace sinew::testing
