#include "sinew/launch/internal/spawn_message.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/value.pb.h"

namespace sinew::internal {
namespace {

// A header, the sizes of the payloads, the values, then the payloads, each where a tensor may
// begin.
constexpr std::uint64_t kMagic = 0x31'6e'77'61'70'73'2e'73;
constexpr std::size_t kAlignment = 64;

struct Header {
  std::uint64_t magic;
  std::uint64_t payload_count;
  std::uint64_t values_bytes;
};

std::size_t aligned(std::size_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

absl::Status write_at(int descriptor, absl::string_view bytes, std::size_t offset) {
  while (!bytes.empty()) {
    const ssize_t size =
        ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return absl::ErrnoToStatus(errno, "cannot hand over the arguments");
    bytes.remove_prefix(static_cast<std::size_t>(size));
    offset += static_cast<std::size_t>(size);
  }
  return absl::OkStatus();
}

}  // namespace

struct SpawnMessageWriter::State {
  EncodeContext context;
  proto::ValueList values;
};

SpawnMessageWriter::SpawnMessageWriter() : state_(std::make_unique<State>()) {}
SpawnMessageWriter::SpawnMessageWriter(SpawnMessageWriter&&) noexcept = default;
SpawnMessageWriter::~SpawnMessageWriter() = default;

ValueWriter SpawnMessageWriter::next() {
  return ValueWriter(*state_->values.add_items(), state_->context);
}

absl::Status SpawnMessageWriter::write(int descriptor, std::size_t offset) const {
  if (state_->values.ByteSizeLong() > kMaxEnvelopeBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the arguments, without their tensors, have ", state_->values.ByteSizeLong(),
                     " bytes; at most ", kMaxEnvelopeBytes, " can be handed over: use tensors"));
  }
  const std::string values = state_->values.SerializeAsString();
  const std::vector<absl::Cord>& payloads = state_->context.payloads();
  std::string head(sizeof(Header) + payloads.size() * sizeof(std::uint64_t), '\0');
  const Header header{kMagic, payloads.size(), values.size()};
  std::memcpy(head.data(), &header, sizeof header);
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    const std::uint64_t size = payloads[i].size();
    std::memcpy(head.data() + sizeof header + i * sizeof size, &size, sizeof size);
  }
  absl::Status status = write_at(descriptor, head + values, offset);
  std::size_t at = aligned(offset + head.size() + values.size());
  for (const absl::Cord& payload : payloads) {
    std::size_t chunk_at = at;
    for (const absl::string_view chunk : payload.Chunks()) {
      if (status.ok()) status = write_at(descriptor, chunk, chunk_at);
      chunk_at += chunk.size();
    }
    at = aligned(at + payload.size());
  }
  return status;
}

struct SpawnMessageReader::State {
  proto::ValueList values;
  std::unique_ptr<DecodeContext> context;
};

SpawnMessageReader::SpawnMessageReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
SpawnMessageReader::SpawnMessageReader(SpawnMessageReader&&) noexcept = default;
SpawnMessageReader::~SpawnMessageReader() = default;

absl::StatusOr<SpawnMessageReader> SpawnMessageReader::open(int descriptor, std::size_t offset) {
  const absl::Status broken = absl::DataLossError("what the processes told each other is broken");
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return absl::ErrnoToStatus(errno, broken.message());
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < offset + sizeof(Header)) return broken;
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, broken.message());
  const std::shared_ptr<char> mapping(static_cast<char*>(memory),
                                      [size](char* start) { ::munmap(start, size); });
  Header header{};
  std::memcpy(&header, mapping.get() + offset, sizeof header);
  std::size_t at = offset + sizeof header;
  const std::size_t most_payloads = (size - at) / sizeof(std::uint64_t);
  if (header.magic != kMagic || header.payload_count > most_payloads) return broken;
  std::vector<std::uint64_t> payload_sizes(header.payload_count);
  std::memcpy(payload_sizes.data(), mapping.get() + at, payload_sizes.size() * sizeof(at));
  at += payload_sizes.size() * sizeof(at);
  if (header.values_bytes > std::min(size - at, kMaxEnvelopeBytes)) return broken;

  auto state = std::make_unique<State>();
  if (!state->values.ParseFromArray(mapping.get() + at, static_cast<int>(header.values_bytes))) {
    return broken;
  }
  at = aligned(at + header.values_bytes);
  std::vector<absl::Cord> payloads;
  for (const std::uint64_t payload_bytes : payload_sizes) {
    if (payload_bytes > 0 && (at > size || payload_bytes > size - at)) return broken;
    payloads.push_back(payload_bytes == 0 ? absl::Cord()
                                          : absl::MakeCordFromExternal(
                                                {mapping.get() + at, payload_bytes}, [mapping] {}));
    at = aligned(at + payload_bytes);
  }
  state->context = std::make_unique<DecodeContext>(std::move(payloads));
  return SpawnMessageReader(std::move(state));
}

std::size_t SpawnMessageReader::size() const {
  return static_cast<std::size_t>(state_->values.items_size());
}

ValueReader SpawnMessageReader::value(std::size_t index, const char* noun, std::size_t number) {
  if (index >= size()) {
    throw RpcError(ErrorCode::kInvalidArgument, absl::StrCat("there is no ", noun, " ", number));
  }
  return ValueReader(state_->values.items(static_cast<int>(index)), *state_->context,
                     ValuePath{nullptr, noun, number});
}

}  // namespace sinew::internal
