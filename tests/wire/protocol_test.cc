// What workers of one protocol number send to each other stays as it is: the fields of messages,
// and the bytes of values. What was written down for that number is in protocol_<number>.txt.

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "sinew/autograd.pb.h"
#include "sinew/device.pb.h"
#include "sinew/etcd_registry.pb.h"
#include "sinew/link.pb.h"
#include "sinew/membership.pb.h"
#include "sinew/names.pb.h"
#include "sinew/nccl.pb.h"
#include "sinew/plane.pb.h"
#include "sinew/registry.pb.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/method.h"
#include "sinew/rref.pb.h"
#include "sinew/store.pb.h"
#include "sinew/tests/wire/wire_test_support.h"
#include "sinew/value.pb.h"

namespace sinew::testing {
namespace {

struct Written {
  std::int64_t count = 0;
  std::string text;
};
bool operator==(const Written& a, const Written& b) {
  return a.count == b.count && a.text == b.text;
}

}  // namespace
}  // namespace sinew::testing

SINEW_STRUCT(sinew::testing::Written, count, text);

namespace sinew::testing {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

// One message of each file. operator.proto is between a worker and a tool, which say their
// versions.
std::vector<const Descriptor*> one_of_each() {
  return {proto::AutogradContext::descriptor(),
          proto::DeviceAttachment::descriptor(),
          proto::EtcdJob::descriptor(),
          proto::LinkHeader::descriptor(),
          proto::Member::descriptor(),
          proto::NameQuery::descriptor(),
          proto::NcclNote::descriptor(),
          proto::PlaneMessage::descriptor(),
          proto::RegistryRecord::descriptor(),
          proto::CallRequest::descriptor(),
          proto::LedgerNote::descriptor(),
          proto::StoreRequest::descriptor(),
          proto::Value::descriptor()};
}

using Lines = std::set<std::string>;

void add_enum(const EnumDescriptor& type, Lines& lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines.insert(
        absl::StrCat(type.full_name(), " ", type.value(i)->name(), " = ", type.value(i)->number()));
  }
}

void add_message(const Descriptor& type, Lines& lines) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string of = field.message_type() != nullptr ? field.message_type()->full_name()
                           : field.enum_type() != nullptr  ? field.enum_type()->full_name()
                                                           : field.type_name();
    lines.insert(absl::StrCat(type.full_name(), " ", field.number(),
                              field.is_repeated() ? " repeated " : " ", of, " ", field.name()));
  }
  for (int i = 0; i < type.enum_type_count(); ++i) add_enum(*type.enum_type(i), lines);
  for (int i = 0; i < type.nested_type_count(); ++i) add_message(*type.nested_type(i), lines);
}

Lines lines_of_messages() {
  Lines lines;
  for (const Descriptor* one : one_of_each()) {
    const FileDescriptor& file = *one->file();
    for (int i = 0; i < file.message_type_count(); ++i) add_message(*file.message_type(i), lines);
    for (int i = 0; i < file.enum_type_count(); ++i) add_enum(*file.enum_type(i), lines);
  }
  return lines;
}

/// The message, and the tensors that travel apart.
std::string text_of(const Encoded& encoded) {
  std::string text = absl::BytesToHexString(encoded.value.SerializeAsString());
  for (const absl::Cord& payload : encoded.payloads) {
    absl::StrAppend(&text, "+", absl::BytesToHexString(std::string(payload)));
  }
  return text;
}

Encoded encoded_of(const std::string& text) {
  Encoded encoded;
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('+', at), text.size());
    parts.push_back(absl::HexStringToBytes(text.substr(at, end - at)));
    at = end + 1;
  }
  EXPECT_TRUE(encoded.value.ParseFromString(parts.front()));
  for (std::size_t i = 1; i < parts.size(); ++i) encoded.payloads.emplace_back(parts[i]);
  return encoded;
}

/// A value that was written down, as it is written today, and whether its old bytes are read.
struct Sample {
  std::string text;
  std::function<bool(const Encoded& old)> is_read;
};

template <class T>
void add(std::map<std::string, Sample>& samples, const std::string& name, const T& value) {
  const auto is_read = [value](const Encoded& old) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      const at::Tensor read = decode<T>(old);
      return read.scalar_type() == value.scalar_type() && read.equal(value) &&
             read.requires_grad() == value.requires_grad();
    } else {
      return decode<T>(old) == value;
    }
  };
  samples[name] = {text_of(encode(value)), is_read};
}

std::map<std::string, Sample> samples() {
  std::map<std::string, Sample> samples;
  add(samples, "bool", true);
  add(samples, "int", -3);
  add(samples, "natural", std::uint64_t{1} << 63);
  add(samples, "double", 0.1);
  add(samples, "string", std::string("caf\xC3\xA9"));
  add(samples, "string-no-utf8", std::string("a\xFF"));
  add(samples, "bytes", Bytes{std::string("\0\xFF", 2)});
  add(samples, "optional-empty", std::optional<int>());
  add(samples, "optional", std::optional<int>(7));
  add(samples, "integers", std::vector<std::int64_t>{1, -1, 300});
  add(samples, "reals", std::vector<double>{0.5, -2});
  add(samples, "texts", std::vector<std::string>{"a", ""});
  add(samples, "map", std::map<std::string, int>{{"a", 1}, {"b", 2}});
  add(samples, "set", std::set<int>{3, 1});
  add(samples, "pair", std::pair<int, std::string>(1, "x"));
  add(samples, "tuple", std::tuple<int, double, bool>(1, 2.5, false));
  add(samples, "variant", std::variant<int, std::string>("x"));
  add(samples, "duration", std::chrono::nanoseconds(1500));
  add(samples, "struct", Written{5, "five"});
  add(samples, "tensor", at::arange(6, at::kFloat).view({2, 3}));
  add(samples, "tensor-scalar", at::scalar_tensor(2, at::kLong));
  add(samples, "tensor-empty", at::empty({0, 4}, at::kByte));
  add(samples, "tensor-requires-grad", at::ones({1}).requires_grad_());
  return samples;
}

class ProtocolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(path_);
    ASSERT_TRUE(file) << "there is no " << path_;
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line.front() == '#') continue;
      if (line.rfind("value ", 0) != 0) {
        messages_.insert(line);
        continue;
      }
      const std::size_t end = line.find(' ', 6);
      values_[line.substr(6, end - 6)] = line.substr(end + 1);
    }
  }

  const std::string path_ = absl::StrCat(SINEW_SOURCE_FOLDER, "/tests/wire/protocol_",
                                         internal::kProtocolVersion, ".txt");
  const std::string advice_ =
      "other versions of this protocol number do not know that: count kProtocolVersion up "
      "(rpc/link/hello.h), and write a new protocol_<number>.txt";
  Lines messages_;
  std::map<std::string, std::string> values_;
};

TEST_F(ProtocolTest, NoFieldOfAMessageChangesOrGoes) {
  const Lines now = lines_of_messages();
  for (const std::string& line : messages_) {
    EXPECT_EQ(now.count(line), 1U) << "'" << line << "' is gone, or changed: " << advice_;
  }
}

TEST_F(ProtocolTest, EveryFieldOfAMessageIsWrittenDown) {
  for (const std::string& line : lines_of_messages()) {
    EXPECT_EQ(messages_.count(line), 1U) << "add this line to " << path_ << ":\n" << line;
  }
}

TEST_F(ProtocolTest, ValuesAreWrittenAndReadAsTheyWere) {
  const auto now = samples();
  EXPECT_GE(values_.size(), now.size());
  for (const auto& [name, sample] : now) {
    const auto old = values_.find(name);
    if (old == values_.end()) {
      ADD_FAILURE() << "add this line to " << path_ << ":\nvalue " << name << " " << sample.text;
      continue;
    }
    EXPECT_EQ(sample.text, old->second) << "of the value '" << name << "': " << advice_;
    EXPECT_TRUE(sample.is_read(encoded_of(old->second))) << name << ": " << advice_;
  }
}

}  // namespace
}  // namespace sinew::testing
