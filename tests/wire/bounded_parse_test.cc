#include "sinew/rpc/wire/bounded_parse.h"

#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <gtest/gtest.h>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/rpc/wire/value_reader.h"
#include "sinew/value.pb.h"

// ---- Memory that is counted, and that fails when it is told to: in the parser's library as well.

namespace {

thread_local std::size_t allocated_bytes = 0;
// Allocations until one fails; never when negative.
thread_local std::ptrdiff_t until_failure = -1;

}  // namespace

// Not inline: where the compiler sees one of them alone it warns of memory from elsewhere.
[[gnu::noinline]] void* operator new(std::size_t size_bytes) {
  if (until_failure == 0) throw std::bad_alloc();
  if (until_failure > 0) --until_failure;
  allocated_bytes += size_bytes;
  if (void* memory = std::malloc(size_bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;

std::string varint(std::size_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text.push_back(static_cast<char>((value & 0x7f) | 0x80));
  text.push_back(static_cast<char>(value));
  return text;
}

/// A field with contents, by hand: made by the library, it would take the memory that it must not
/// take here.
std::string field(int number, const std::string& contents) {
  return varint(static_cast<std::size_t>(number) << 3 | 2) + varint(contents.size()) + contents;
}

std::string times(std::size_t count, const std::string& text) {
  std::string all;
  all.reserve(count * text.size());
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

constexpr int kList = proto::Value::kListFieldNumber;
constexpr int kIntegers = proto::Value::kIntegersFieldNumber;
constexpr int kItems = 1;

/// Each one two bytes.
std::string list_of_nulls(std::size_t count) {
  return field(kList, times(count, field(kItems, "")));
}
std::string packed_integers(std::size_t count) {
  return field(kIntegers, field(kItems, std::string(count, '\0')));
}

struct Parsed {
  absl::Status status;
  std::size_t bytes;
};
Parsed parse(const std::string& bytes) {
  proto::Value value;
  const std::size_t before = allocated_bytes;
  absl::Status status = parse_bounded(bytes, value);
  return {std::move(status), allocated_bytes - before};
}

void expect_refused(const std::string& bytes, const std::string& text) {
  const Parsed parsed = parse(bytes);
  EXPECT_EQ(parsed.status.code(), absl::StatusCode::kResourceExhausted) << parsed.status;
  EXPECT_THAT(std::string(parsed.status.message()), HasSubstr(text));
  EXPECT_LT(parsed.bytes, 65536U) << "nothing is made of it";
}

TEST(BoundedParse, AsManyPartsAsAreAllowed) {
  proto::Value value;
  // The list is one as well.
  ASSERT_TRUE(parse_bounded(list_of_nulls(kMaxMessageParts - 1), value).ok());
  EXPECT_EQ(value.list().items_size(), static_cast<int>(kMaxMessageParts) - 1);
}

TEST(BoundedParse, TooManyParts) {
  const std::string text = "more than 1048576 values, texts and other parts";
  expect_refused(list_of_nulls(kMaxMessageParts), text);
  expect_refused(list_of_nulls(std::size_t{8} << 20), "travel packed");
  // Texts count, at any depth; so do fields that are kept although nobody knows them.
  const std::string texts = times(kMaxMessageParts / 2, field(kItems, field(5, "")));
  expect_refused(field(kList, texts), text);
  std::string nested = field(kList, times(kMaxMessageParts, field(kItems, "")));
  for (int depth = 0; depth < 20; ++depth) nested = field(kList, field(kItems, nested));
  expect_refused(nested, text);
  expect_refused(times(kMaxMessageParts + 1, std::string("\xf8\x07\x00", 3)), text);
  expect_refused(times(kMaxMessageParts + 1, field(100, "")), text);
  // A boolean that comes as something else is one of these.
  expect_refused(times(kMaxMessageParts + 1, field(1, "")), text);
}

TEST(BoundedParse, PackedListsAreOnePart) {
  proto::Value value;
  ASSERT_TRUE(parse_bounded(packed_integers(kMaxPackedItems / 2), value).ok());
  EXPECT_EQ(value.integers().items_size(), static_cast<int>(kMaxPackedItems / 2));
  expect_refused(packed_integers(kMaxPackedItems + 1), "more than 16777216 numbers");
}

TEST(BoundedParse, LargeMessagesThatAreNone) {
  const std::string padding = field(100, std::string(std::size_t{3} << 20, 'x'));
  const std::string endless = varint(kList << 3 | 2) + varint(1000);
  std::string deep = padding;
  for (int depth = 0; depth < 200; ++depth) deep = field(kList, field(kItems, deep));
  const std::string group = varint(100 << 3 | 3) + varint(100 << 3 | 4);
  for (const std::string& bytes : {padding + endless, padding + "\x3a", padding + "\x07", deep,
                                   padding + group, std::string(std::size_t{3} << 20, '\xff')}) {
    EXPECT_EQ(parse(bytes).status.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(parse(padding).status.ok());
}

TEST(BoundedParse, NoMemoryFailsTheMessage) {
#ifdef __SANITIZE_ADDRESS__
  // The library forgets an item that it could not put into its list.
  const __lsan::ScopedDisabler leaks;
#endif
  proto::Value value;
  proto::ValueList& list = *value.mutable_list();
  list.add_items()->set_text(std::string(100, 'x'));
  list.add_items()->mutable_reals()->add_items(1);
  list.add_items()->mutable_tensor()->add_sizes(3);
  list.add_items()->mutable_reference()->mutable_owner()->set_name(std::string(100, 'x'));
  for (int i = 0; i < 20; ++i) list.add_items()->mutable_map()->add_keys()->set_integer(i);
  const std::string bytes = value.SerializeAsString();
  int failures = 0;
  for (absl::Status status = absl::UnknownError("");; ++failures) {
    proto::Value parsed;
    until_failure = failures;
    status = parse_bounded(bytes, parsed);
    until_failure = -1;
    if (status.ok()) {
      EXPECT_EQ(parsed.SerializeAsString(), bytes);
      break;
    }
    // Its own text needs memory too, and may be cut; there is none left for it here.
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << failures << ": " << status;
    // It is none the worse for it.
    ASSERT_TRUE(parsed.ParseFromString(bytes));
  }
  EXPECT_GT(failures, 50);
}

TEST(BoundedParse, MessagesOfUsers) {
  proto::Value value;
  google::protobuf::Any& any = *value.mutable_message();
  any.set_type_url("type.googleapis.com/google.protobuf.ListValue");
  any.set_value(times(kMaxMessageParts + 1, field(1, "")));
  DecodeContext context({});
  const ValueReader reader(value, context, ValuePath{nullptr, "argument", 2});
  google::protobuf::ListValue message;
  try {
    reader.message(message);
    ADD_FAILURE() << "it was read";
  } catch (const RpcError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.message(), HasSubstr("argument 2: a message google.protobuf.ListValue is"));
  }
}

}  // namespace
}  // namespace sinew::internal
