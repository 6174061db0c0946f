#include "sinew/autograd/context_id.h"

#include "absl/strings/str_format.h"

namespace sinew {
namespace autograd {

std::string to_string(const ContextId& id) {
  return absl::StrFormat("%016x.%d", id.creator.value, id.serial);
}

std::ostream& operator<<(std::ostream& out, const ContextId& id) { return out << to_string(id); }

}  // namespace autograd

void Codec<autograd::ContextId>::encode(ValueWriter& writer, const autograd::ContextId& id) {
  ListWriter list = writer.list(3);
  list.next().natural(id.creator.value);
  list.next().natural(id.serial);
  list.next().natural(id.secret);
}

autograd::ContextId Codec<autograd::ContextId>::decode(const ValueReader& reader) {
  const ListReader list = reader.list(3);
  autograd::ContextId id;
  id.creator.value = list.item(0).natural();
  id.serial = list.item(1).natural();
  id.secret = list.item(2).natural();
  return id;
}

}  // namespace sinew
