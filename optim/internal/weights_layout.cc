#include "sinew/optim/internal/weights_layout.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/optim/internal/durable_file.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// Those that travel; with how many parts of which width an element has.
struct ElementType {
  at::ScalarType type;
  std::size_t parts;
  std::size_t width;
};
constexpr ElementType kTypes[] = {
    {at::kByte, 1, 1},          {at::kChar, 1, 1},        {at::kBool, 1, 1},
    {at::kShort, 1, 2},         {at::kHalf, 1, 2},        {at::kBFloat16, 1, 2},
    {at::kInt, 1, 4},           {at::kFloat, 1, 4},       {at::kLong, 1, 8},
    {at::kDouble, 1, 8},        {at::kComplexHalf, 2, 2}, {at::kComplexFloat, 2, 4},
    {at::kComplexDouble, 2, 8},
};
constexpr std::size_t kMostTensors = std::size_t{1} << 20;
constexpr std::size_t kMostName = 4096;
// Equal pieces of this size are passed over at once.
constexpr std::size_t kPiece = 1024;

const ElementType* find_type(std::int32_t type) {
  for (const ElementType& each : kTypes) {
    if (static_cast<std::int32_t>(each.type) == type) return &each;
  }
  return nullptr;
}

absl::Status bad(const NamedShape& tensor, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("weights: tensor '", printable(tensor.name, 256), "' ", why));
}

/// Nothing: more than `most`.
std::optional<std::size_t> product(const std::vector<std::int64_t>& sizes, std::size_t most) {
  std::size_t count = 1;
  for (const std::int64_t size : sizes) {
    if (size == 0) return 0;
  }
  for (const std::int64_t size : sizes) {
    if (static_cast<std::uint64_t>(size) > most / count) return std::nullopt;
    count *= static_cast<std::size_t>(size);
  }
  return count;
}

void put_number(std::string& out, std::uint64_t number) {
  while (number >= 0x80) {
    out.push_back(static_cast<char>(number | 0x80));
    number >>= 7;
  }
  out.push_back(static_cast<char>(number));
}

/// Nothing: it ends, or is no number of 64 bits.
std::optional<std::uint64_t> take_number(std::string_view& in) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    if (shift == 63 && byte > 1) return std::nullopt;
    number |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return number;
  }
  return std::nullopt;
}

// Elements that are numbers change by few units in the last place: small numbers, up or down.
template <class Bits>
std::uint64_t zigzag(Bits difference) {
  const bool is_negative = (difference >> (8 * sizeof(Bits) - 1)) != 0;
  const auto twice = static_cast<Bits>(difference << 1);
  return static_cast<Bits>(is_negative ? ~twice : twice);
}
template <class Bits>
Bits unzigzag(std::uint64_t number) {
  const auto half = static_cast<Bits>(number >> 1);
  return static_cast<Bits>((number & 1) != 0 ? ~half : half);
}

/// False: more than `most`. `same` are elements before that do not differ.
template <class Bits>
bool encode(const char* from, const char* to, std::size_t count, std::uint64_t& same,
            std::size_t most, std::string& out) {
  constexpr std::size_t kStep = kPiece / sizeof(Bits);
  for (std::size_t at = 0; at < count; at += kStep) {
    const std::size_t end = std::min(count, at + kStep);
    const std::size_t offset = at * sizeof(Bits);
    if (std::memcmp(from + offset, to + offset, (end - at) * sizeof(Bits)) == 0) {
      same += end - at;
      continue;
    }
    for (std::size_t i = at; i < end; ++i) {
      Bits before;
      Bits after;
      std::memcpy(&before, from + i * sizeof(Bits), sizeof(Bits));
      std::memcpy(&after, to + i * sizeof(Bits), sizeof(Bits));
      if (before == after) {
        ++same;
        continue;
      }
      put_number(out, std::exchange(same, 0));
      put_number(out, zigzag(static_cast<Bits>(after - before)));
    }
    if (out.size() > most) return false;
  }
  return true;
}

template <class Bits>
absl::Status add(char* element, std::uint64_t change) {
  if (change > std::numeric_limits<Bits>::max()) {
    return absl::InvalidArgumentError("weights: a change is wider than its element");
  }
  Bits bits;
  std::memcpy(&bits, element, sizeof bits);
  bits = static_cast<Bits>(bits + unzigzag<Bits>(change));
  std::memcpy(element, &bits, sizeof bits);
  return absl::OkStatus();
}

absl::Status add(char* element, std::size_t width, std::uint64_t change) {
  switch (width) {
    case 1:
      return add<std::uint8_t>(element, change);
    case 2:
      return add<std::uint16_t>(element, change);
    case 4:
      return add<std::uint32_t>(element, change);
    default:
      return add<std::uint64_t>(element, change);
  }
}

}  // namespace

absl::StatusOr<WeightsLayout> WeightsLayout::make(std::vector<NamedShape> tensors,
                                                  std::uint64_t most_bytes) {
  if (tensors.empty()) return absl::InvalidArgumentError("weights: a version has no tensors");
  if (tensors.size() > kMostTensors) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "weights: a version has %d tensors, and %d are the most", tensors.size(), kMostTensors));
  }
  WeightsLayout layout;
  std::size_t end = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const NamedShape& tensor = tensors[i];
    if (tensor.name.size() > kMostName) return bad(tensor, "has a name of more than 4096 bytes");
    if (i > 0 && tensor.name == tensors[i - 1].name) return bad(tensor, "is there twice");
    if (i > 0 && tensor.name < tensors[i - 1].name) return bad(tensor, "is not in order");
    const ElementType* const type = find_type(tensor.type);
    if (type == nullptr) return bad(tensor, "has elements of a type that does not travel");
    const bool is_size = std::all_of(tensor.sizes.begin(), tensor.sizes.end(),
                                     [](std::int64_t size) { return size >= 0; });
    if (!is_size) return bad(tensor, "has a negative size");
    const std::size_t element = type->parts * type->width;
    const std::size_t left = static_cast<std::size_t>(most_bytes) - end;
    const std::optional<std::size_t> count = product(tensor.sizes, left / element);
    if (!count) {
      return bad(tensor, absl::StrCat("makes the version larger than the ", most_bytes,
                                      " bytes that are allowed"));
    }
    layout.places_.push_back({end, *count * type->parts, type->width});
    const std::size_t filled = end + *count * element;
    end = (filled + kAlignment - 1) / kAlignment * kAlignment;
    if (end > most_bytes) end = static_cast<std::size_t>(most_bytes);
    layout.bytes_ = std::max<std::size_t>(filled, 1);
  }
  layout.tensors_ = std::move(tensors);
  return layout;
}

std::string WeightsLayout::digest(std::string_view bytes) const {
  std::string text = sha256(bytes);
  for (const NamedShape& tensor : tensors_) {
    // Lengths first: no two layouts have one text.
    absl::StrAppend(&text, "\n", tensor.name.size(), " ", tensor.name, " ", tensor.type, " ",
                    absl::StrJoin(tensor.sizes, ","));
  }
  return sha256(text);
}

std::optional<std::string> encode_changes(const WeightsLayout& layout, const char* from,
                                          const char* to, std::size_t most_bytes) {
  std::string out;
  std::uint64_t same = 0;
  for (const WeightsLayout::Place& place : layout.places()) {
    const char* const before = from + place.offset;
    const char* const after = to + place.offset;
    bool fits = true;
    switch (place.width) {
      case 1:
        fits = encode<std::uint8_t>(before, after, place.elements, same, most_bytes, out);
        break;
      case 2:
        fits = encode<std::uint16_t>(before, after, place.elements, same, most_bytes, out);
        break;
      case 4:
        fits = encode<std::uint32_t>(before, after, place.elements, same, most_bytes, out);
        break;
      default:
        fits = encode<std::uint64_t>(before, after, place.elements, same, most_bytes, out);
        break;
    }
    if (!fits) return std::nullopt;
  }
  return out;
}

absl::Status apply_changes(const WeightsLayout& layout, std::string_view changes, char* bytes) {
  auto place = layout.places().begin();
  std::uint64_t position = 0;
  while (!changes.empty()) {
    const std::optional<std::uint64_t> same = take_number(changes);
    const std::optional<std::uint64_t> change = same ? take_number(changes) : std::nullopt;
    if (!change) return absl::InvalidArgumentError("weights: changes end within a number");
    std::uint64_t skip = *same;
    while (place != layout.places().end() && skip >= place->elements - position) {
      skip -= place->elements - position;
      position = 0;
      ++place;
    }
    if (place == layout.places().end()) {
      return absl::InvalidArgumentError("weights: a change is behind the last element");
    }
    position += skip;
    const absl::Status added =
        add(bytes + place->offset + position * place->width, place->width, *change);
    if (!added.ok()) return added;
    ++position;
  }
  return absl::OkStatus();
}

}  // namespace sinew::internal
