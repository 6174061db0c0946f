#include "sinew/rpc/wire/tensor_codec.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_sparse_coo_tensor_unsafe.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/empty_strided.h"
#include "ATen/ops/from_blob.h"
#include "absl/base/config.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/core/CPUAllocator.h"
#include "c10/util/accumulate.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/log.h"
#include "sinew/rpc/base/receive_pool.h"
#include "sinew/rpc/device/device_runtime.h"
#include "sinew/rpc/wire/absl_view.h"
#include "sinew/rpc/wire/device_codec.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/rpc/wire/tensor_layout.h"
#include "sinew/value.pb.h"

#ifndef ABSL_IS_LITTLE_ENDIAN
#error "the payloads of tensors are little-endian; a big-endian machine would have to swap them"
#endif

namespace sinew::internal {
namespace {

struct ElementType {
  proto::DType wire;
  at::ScalarType type;
};

constexpr ElementType kElementTypes[] = {
    {proto::UINT8, at::kByte},
    {proto::INT8, at::kChar},
    {proto::INT16, at::kShort},
    {proto::INT32, at::kInt},
    {proto::INT64, at::kLong},
    {proto::FLOAT16, at::kHalf},
    {proto::BFLOAT16, at::kBFloat16},
    {proto::FLOAT32, at::kFloat},
    {proto::FLOAT64, at::kDouble},
    {proto::BOOL, at::kBool},
    {proto::COMPLEX32, at::kComplexHalf},
    {proto::COMPLEX64, at::kComplexFloat},
    {proto::COMPLEX128, at::kComplexDouble},
};

// --- sending

[[noreturn]] void refuse(std::string_view problem) {
  throw RpcError(ErrorCode::kInvalidArgument, std::string(problem));
}

proto::DType wire_type(at::ScalarType type) {
  for (const ElementType& element : kElementTypes) {
    if (element.type == type) return element.wire;
  }
  refuse(absl::StrCat("a tensor of type ", c10::toString(type),
                      " cannot be sent; convert it with .to(), e.g. to at::kFloat"));
}

DeviceRuntime& runtime_of(c10::Device device) {
  const auto runtime = find_device_runtime(device.type());
  if (runtime == nullptr) {
    refuse(absl::StrCat("a tensor on ", device.str(), " cannot be sent: Sinew was built without ",
                        c10::DeviceTypeName(device.type(), true), "; pass tensor.cpu()"));
  }
  // The registry keeps it.
  return *runtime;
}

c10::Device target_of(const at::Tensor& tensor, EncodeContext& context) {
  if (tensor.is_meta()) refuse("a tensor on the meta device has no elements to send");
  if (context.device_road() != nullptr) {
    return context.device_road()->target(*context.route(), tensor.device());
  }
  if (tensor.device().is_cpu()) return c10::kCPU;
  refuse(
      absl::StrCat("a tensor on ", tensor.device().str(),
                   " cannot be sent; pass tensor.cpu() and move it to its device at the receiver"));
}

void check_sendable(const at::Tensor& tensor) {
  if (tensor.is_quantized()) {
    refuse(
        "a quantized tensor cannot be sent; pass tensor.dequantize(), or tensor.int_repr() with "
        "its scale");
  }
  if (tensor.is_nested()) {
    refuse("a nested tensor cannot be sent; pass tensor.unbind() as a std::vector<at::Tensor>");
  }
  if (tensor.layout() != at::kStrided && tensor.layout() != at::kSparse) {
    refuse(absl::StrCat("a tensor of layout ", c10::str(tensor.layout()),
                        " cannot be sent; pass tensor.to_dense() or tensor.to_sparse()"));
  }
}

// from_blob() without a deleter leaves no context; a context that nothing is done with owns nothing
// either. Memory behind a deleter of the user's that does nothing cannot be told from memory that
// is owned.
bool owns_memory(const c10::Storage& storage) {
  const c10::DataPtr& memory = storage.data_ptr();
  return memory.get_context() != nullptr && memory.get_deleter() != nullptr &&
         memory.get_deleter() != &c10::detail::deleteNothing &&
         memory.get_deleter() != &at::detail::noopDelete;
}

// Tells when a tensor was changed in place while a message referred to its memory.
class ChangeCheck {
 public:
  /// `message` is EncodeContext::describe().
  ChangeCheck(const at::Tensor& tensor, const std::string& message)
      : counter_(tensor.unsafeGetTensorImpl()->version_counter()),
        version_(counter_.enabled() ? counter_.current_version() : 0),
        description_(absl::StrCat(c10::toString(tensor.scalar_type()), " [",
                                  absl::StrJoin(tensor.sizes(), ","), "]",
                                  message.empty() ? "" : absl::StrCat(", of ", message))) {}

  void at_end() const {
    if (!counter_.enabled() || counter_.current_version() == version_) return;
    log_line("", absl::StrCat("a tensor, ", description_,
                              ", was changed in place while it was being sent, so its receiver may "
                              "have got some of both: wait for the call first, or send a clone()"));
  }
  static bool is_on() {
    static const bool on = [] {
      const char* const setting = std::getenv("SINEW_CHECK_TENSORS");
      return setting != nullptr && absl::string_view(setting) == "1";
    }();
    return on;
  }

 private:
  const c10::VariableVersion counter_;
  const std::uint32_t version_;
  const std::string description_;
};

// The elements of a dense tensor, in the order of its memory. `context`: of the message that they
// are for; null: of none.
absl::Cord elements(const at::Tensor& tensor, const EncodeContext* context) {
  const std::size_t size = tensor.nbytes();
  if (size == 0) return absl::Cord();
  const c10::Storage& storage = tensor.storage();
  const std::size_t offset = static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize();
  if (offset + size > storage.nbytes()) {
    refuse(absl::StrCat("a tensor needs bytes ", offset, " to ", offset + size,
                        " of its storage, which was resized to ", storage.nbytes()));
  }
  const absl::string_view bytes(static_cast<const char*>(tensor.data_ptr()), size);
  if (size < kMinAliasedBytes) return absl::Cord(bytes);
  if (ChangeCheck::is_on()) {
    const std::string message = context == nullptr ? std::string() : context->describe();
    return absl::MakeCordFromExternal(
        bytes, [storage, check = ChangeCheck(tensor, message)] { check.at_end(); });
  }
  return absl::MakeCordFromExternal(bytes, [storage] {});
}

// A dense tensor at the beginning of a block, which it keeps.
at::Tensor tensor_in(std::shared_ptr<ReceiveBlock> block, at::IntArrayRef sizes,
                     at::IntArrayRef strides, at::ScalarType type) {
  using Owner = std::shared_ptr<ReceiveBlock>;
  char* const data = block->data();
  c10::DataPtr memory(
      data, new Owner(std::move(block)), [](void* owner) { delete static_cast<Owner*>(owner); },
      at::kCPU);
  const auto size =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), size, std::move(memory),
                             c10::GetCPUAllocator(), /*resizable=*/true);
  return at::empty({0}, at::TensorOptions().dtype(type).device(at::kCPU))
      .set_(storage, 0, sizes, strides);
}

// To read any other byte in a bool is undefined behaviour.
bool are_booleans(const absl::Cord& payload) {
  for (const absl::string_view chunk : payload.Chunks()) {
    if (chunk.find_first_not_of(absl::string_view("\0\1", 2)) != chunk.npos) return false;
  }
  return true;
}

absl::Cord staged_elements(const at::Tensor& tensor) {
  if (tensor.nbytes() == 0) return absl::Cord();
  DeviceRuntime& runtime = runtime_of(tensor.device());
  return elements(runtime.to_host(tensor, runtime.current_stream(tensor.device())), nullptr);
}

// Bytes that are no booleans must be found, which only the host does.
bool may_skip_host(const at::Tensor& tensor, c10::Device target) {
  return !tensor.device().is_cpu() && !target.is_cpu() && tensor.scalar_type() != at::kBool &&
         tensor.nbytes() > 0;
}

// `tensor` is strided and takes part in no graph.
void encode_strided(at::Tensor tensor, c10::Device target, proto::Tensor& description,
                    EncodeContext& context) {
  description.set_dtype(wire_type(tensor.scalar_type()));
  for (const std::int64_t size : tensor.sizes()) description.add_sizes(size);
  // A zero tensor has no memory at all.
  if (tensor._is_zerotensor()) tensor = tensor.clone();
  tensor = tensor.resolve_conj().resolve_neg();
  DimensionOrder order = dimension_order({tensor.sizes().data(), tensor.sizes().size()},
                                         {tensor.strides().data(), tensor.strides().size()});
  const bool on_host = tensor.device().is_cpu();
  const bool must_copy =
      order.layout == Layout::kScattered ||
      (on_host && tensor.nbytes() >= kMinAliasedBytes && !owns_memory(tensor.storage()));
  if (must_copy) {
    const bool scattered = order.layout == Layout::kScattered;
    tensor = tensor.clone(scattered ? at::MemoryFormat::Contiguous : at::MemoryFormat::Preserve);
    if (scattered) order = {};
  }
  description.mutable_order()->Add(order.order.begin(), order.order.end());
  if (!target.is_cpu()) write_device(target, *description.mutable_device());
  if (may_skip_host(tensor, target)) {
    proto::DeviceSlot slot;
    if (context.device_road()->take(*context.route(), tensor, target, slot)) {
      *description.mutable_slot() = slot;
      return;
    }
  }
  absl::Cord payload = on_host ? elements(tensor, &context) : staged_elements(tensor);
  if (tensor.scalar_type() == at::kBool && !are_booleans(payload)) {
    refuse("a tensor of booleans has bytes other than 0 and 1; send tensor.view(at::kByte).ne(0)");
  }
  description.set_payload(context.add_payload(std::move(payload)));
}

void encode_sparse(const at::Tensor& tensor, c10::Device target, proto::Tensor& description,
                   EncodeContext& context) {
  description.set_dtype(wire_type(tensor.scalar_type()));
  for (const std::int64_t size : tensor.sizes()) description.add_sizes(size);
  if (!target.is_cpu()) write_device(target, *description.mutable_device());
  proto::Sparse& sparse = *description.mutable_sparse();
  // To the host, which checks the indices.
  encode_strided(tensor._indices().contiguous(), c10::kCPU, *sparse.mutable_indices(), context);
  encode_strided(tensor._values().contiguous(), c10::kCPU, *sparse.mutable_values(), context);
  sparse.set_coalesced(tensor.is_coalesced());
}

// --- receiving

std::string shape_text(Sizes sizes) { return absl::StrCat("[", absl::StrJoin(sizes, ","), "]"); }

class TensorReader {
 public:
  TensorReader(DecodeContext& context, const ValuePath& path) : context_(context), path_(path) {}

  at::Tensor read(const proto::Tensor& description) {
    count();
    if (description.undefined()) return read_undefined(description);
    return description.has_sparse() ? read_sparse(description) : read_strided(description);
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat(path_.text(), ": ", absl_view(problem)));
  }

  void count() {
    if (++context_.tensors_seen > context_.limits().max_tensors) {
      throw RpcError(ErrorCode::kResourceExhausted,
                     absl::StrCat(path_.text(), ": the message has more than ",
                                  context_.limits().max_tensors, " tensors"));
    }
  }

  at::ScalarType element_type(const proto::Tensor& description) const {
    for (const ElementType& element : kElementTypes) {
      if (element.wire == description.dtype()) return element.type;
    }
    fail(absl::StrCat("a tensor has the unknown element type ",
                      static_cast<int>(description.dtype())));
  }

  Sizes checked_sizes(const proto::Tensor& description) const {
    const Sizes sizes(description.sizes());
    if (sizes.size() > context_.limits().max_tensor_dims) {
      fail(absl::StrCat("a tensor has ", sizes.size(), " dimensions; the limit is ",
                        context_.limits().max_tensor_dims));
    }
    return sizes;
  }

  std::int64_t size_bytes(Sizes sizes, at::ScalarType type) const {
    const auto size = checked_size_bytes(sizes, static_cast<std::int64_t>(c10::elementSize(type)));
    if (!size.has_value()) {
      fail(absl::StrCat("a tensor cannot have the shape ", shape_text(sizes)));
    }
    return *size;
  }

  void set_requires_grad(const at::Tensor& tensor, const proto::Tensor& description) const {
    if (!description.requires_grad()) return;
    if (!c10::isFloatingType(tensor.scalar_type()) && !c10::isComplexType(tensor.scalar_type())) {
      fail("a tensor of integers or booleans says that it requires a gradient");
    }
    tensor.requires_grad_(true);
  }

  c10::Device target(const proto::Tensor& description) const {
    if (!description.has_device()) return c10::kCPU;
    const std::optional<c10::Device> device = read_device(description.device());
    if (!device.has_value()) fail("a tensor is for a device that cannot be");
    if (device->is_cpu()) return *device;
    if (context_.device_road() == nullptr) {
      fail("a tensor is for a device, but only workers may send such");
    }
    context_.device_road()->check_device(*device);
    return *device;
  }

  at::Tensor read_undefined(const proto::Tensor& description) const {
    if (description.has_payload() || description.has_sparse() || description.sizes_size() != 0 ||
        description.order_size() != 0 || description.has_device() || description.has_slot()) {
      fail("an undefined tensor has sizes or elements");
    }
    return at::Tensor();
  }

  at::Tensor read_strided(const proto::Tensor& description) {
    at::Tensor tensor = read_elements(description);
    set_requires_grad(tensor, description);
    return tensor;
  }

  at::Tensor read_elements(const proto::Tensor& description) {
    const at::ScalarType type = element_type(description);
    const Sizes sizes = checked_sizes(description);
    const std::int64_t expected_bytes = size_bytes(sizes, type);
    const absl::Span<const std::int32_t> order(description.order());
    if (!order.empty() && !is_permutation(order, sizes.size())) {
      fail(absl::StrCat("the order of a tensor's dimensions, [", absl::StrJoin(order, ","),
                        "], is no permutation of its ", sizes.size(), " dimensions"));
    }
    const c10::Device device = target(description);
    const std::vector<std::int64_t> strides = dense_strides(sizes, order);
    if (description.has_slot()) {
      const bool allowed = !device.is_cpu() && !description.has_payload() && type != at::kBool;
      if (!allowed) fail("a tensor cannot come from device to device as its description says");
      context_.device_road()->check_size(*context_.route(), description.slot(),
                                         static_cast<std::size_t>(expected_bytes));
      at::Tensor tensor = allocate_on(device, sizes, strides, type);
      context_.device_road()->receive(*context_.route(), description.slot(), tensor);
      return tensor;
    }
    const absl::Cord payload = take_payload(description, sizes, expected_bytes);
    if (type == at::kBool && !are_booleans(payload)) {
      fail("a tensor of booleans has bytes other than 0 and 1");
    }
    if (!device.is_cpu()) {
      at::Tensor tensor = allocate_on(device, sizes, strides, type);
      if (expected_bytes > 0) bring(payload, tensor);
      return tensor;
    }
    if (const absl::optional<absl::string_view> flat = payload.TryFlat()) {
      // It was received into memory that has no other holder.
      if (auto block = ReceivePool::of_process().claim(*flat)) {
        return tensor_in(std::move(block), {sizes.data(), sizes.size()}, strides, type);
      }
    }
    at::Tensor tensor = allocate(sizes, strides, type);
    copy(payload, tensor);
    return tensor;
  }

  absl::Cord take_payload(const proto::Tensor& description, Sizes sizes,
                          std::int64_t expected_bytes) const {
    if (!description.has_payload()) fail("a tensor has no payload");
    const std::uint32_t number = description.payload();
    const absl::Cord* payload = context_.payload(number);
    if (payload == nullptr) {
      fail(number < context_.payload_count()
               ? absl::StrCat("payload ", number, " belongs to an earlier tensor")
               : absl::StrCat("a tensor refers to payload ", number, " of a message with ",
                              context_.payload_count()));
    }
    if (payload->size() != static_cast<std::size_t>(expected_bytes)) {
      fail(absl::StrCat("a tensor of shape ", shape_text(sizes), " and type ",
                        proto::DType_Name(description.dtype()), " takes ", expected_bytes,
                        " bytes; its payload has ", payload->size()));
    }
    return context_.take_payload(number);
  }

  at::Tensor allocate(Sizes sizes, const std::vector<std::int64_t>& strides,
                      at::ScalarType type) const {
    try {
      return allocate_receive_tensor({sizes.data(), sizes.size()}, strides, type);
    } catch (const std::exception& error) {
      throw RpcError(ErrorCode::kResourceExhausted,
                     absl::StrCat(path_.text(), ": no memory for a tensor of shape ",
                                  shape_text(sizes), ": ", error.what()));
    }
  }

  at::Tensor allocate_on(c10::Device device, Sizes sizes, const std::vector<std::int64_t>& strides,
                         at::ScalarType type) const {
    try {
      return at::empty_strided({sizes.data(), sizes.size()}, strides,
                               at::TensorOptions().dtype(type).device(device));
    } catch (const std::exception& error) {
      throw RpcError(
          ErrorCode::kResourceExhausted,
          absl::StrCat(path_.text(), ": no memory on ", device.str(), " for a tensor of shape ",
                       shape_text(sizes), ": ", error.what()));
    }
  }

  // From the host, `source`, to a device.
  static void bring(const absl::Cord& source, const at::Tensor& tensor) {
    DeviceRuntime& runtime = runtime_of(tensor.device());
    const at::Tensor host = runtime.allocate_host(source.size());
    copy(source, host);
    runtime.to_device(host, tensor, runtime.current_stream(tensor.device()));
  }

  at::Tensor moved(const at::Tensor& from_host, c10::Device device) const {
    if (device.is_cpu()) return from_host;
    const Sizes sizes(from_host.sizes().data(), from_host.sizes().size());
    at::Tensor tensor =
        allocate_on(device, sizes, from_host.strides().vec(), from_host.scalar_type());
    if (tensor.nbytes() > 0) bring(elements(from_host, nullptr), tensor);
    return tensor;
  }

  static void copy(const absl::Cord& payload, const at::Tensor& tensor) {
    char* to = static_cast<char*>(tensor.data_ptr());
    for (const absl::string_view chunk : payload.Chunks()) {
      std::memcpy(to, chunk.data(), chunk.size());
      to += chunk.size();
    }
  }

  at::Tensor read_sparse(const proto::Tensor& description) {
    const proto::Sparse& sparse = description.sparse();
    if (description.has_payload() || description.has_slot() || description.order_size() != 0) {
      fail("a sparse tensor has a payload of its own");
    }
    const c10::Device device = target(description);
    check_part(sparse.indices());
    check_part(sparse.values());
    const at::ScalarType type = element_type(description);
    if (sparse.values().dtype() != description.dtype()) {
      fail("a sparse tensor and its values differ in their element types");
    }
    const Sizes sizes = checked_sizes(description);
    size_bytes(sizes, type);
    check_sparse_shapes(sizes, sparse);
    count();
    const at::Tensor indices = read_elements(sparse.indices());
    count();
    const at::Tensor values = read_elements(sparse.values());
    check_indices(indices, sizes, sparse.coalesced());
    const at::Tensor there = moved(values, device);
    at::Tensor tensor = at::_sparse_coo_tensor_unsafe(moved(indices, device), there,
                                                      at::IntArrayRef(sizes.data(), sizes.size()),
                                                      there.options().layout(at::kSparse));
    tensor._coalesced_(sparse.coalesced());
    set_requires_grad(tensor, description);
    return tensor;
  }

  void check_part(const proto::Tensor& part) const {
    if (part.undefined() || part.has_sparse() || part.order_size() != 0 || part.has_device() ||
        part.has_slot()) {
      fail("the indices and values of a sparse tensor must be row-major tensors");
    }
  }

  void check_sparse_shapes(Sizes sizes, const proto::Sparse& sparse) const {
    const Sizes indices = checked_sizes(sparse.indices());
    const Sizes values = checked_sizes(sparse.values());
    if (sparse.indices().dtype() != proto::INT64 || indices.size() != 2) {
      fail("the indices of a sparse tensor must be a matrix of INT64");
    }
    const std::int64_t sparse_dims = indices[0];
    const bool dims_agree =
        sparse_dims >= 0 && !values.empty() &&
        static_cast<std::size_t>(sparse_dims) <= sizes.size() &&
        sizes.size() - static_cast<std::size_t>(sparse_dims) == values.size() - 1;
    if (!dims_agree || values[0] != indices[1] ||
        sizes.subspan(static_cast<std::size_t>(sparse_dims)) != values.subspan(1)) {
      fail(absl::StrCat("a sparse tensor of shape ", shape_text(sizes),
                        " cannot have indices of shape ", shape_text(indices),
                        " and values of shape ", shape_text(values)));
    }
  }

  // Kernels read and write at these positions unchecked, and search in the order that `coalesced`
  // promises.
  void check_indices(const at::Tensor& indices, Sizes sizes, bool coalesced) const {
    const std::int64_t dims = indices.size(0);
    const std::int64_t count = indices.size(1);
    const auto* data = indices.data_ptr<std::int64_t>();
    for (std::int64_t d = 0; d < dims; ++d) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t index = data[d * count + i];
        if (index < 0 || index >= sizes[static_cast<std::size_t>(d)]) {
          fail(absl::StrCat("index ", index, " lies outside of dimension ", d,
                            " of a sparse tensor of shape ", shape_text(sizes)));
        }
      }
    }
    for (std::int64_t i = 1; coalesced && i < count; ++i) {
      std::int64_t d = 0;
      while (d < dims && data[d * count + i] == data[d * count + i - 1]) ++d;
      if (d == dims || data[d * count + i] < data[d * count + i - 1]) {
        fail("a sparse tensor is marked as coalesced, but its indices are not sorted and unique");
      }
    }
  }

  DecodeContext& context_;
  const ValuePath& path_;
};

}  // namespace

void encode_tensor(const at::Tensor& tensor, proto::Tensor& description, EncodeContext& context) {
  if (!tensor.defined()) {
    description.set_undefined(true);
    return;
  }
  encode_tensor_to(tensor, target_of(tensor, context), description, context);
}

void encode_tensor_to(const at::Tensor& tensor, const c10::Device& target,
                      proto::Tensor& description, EncodeContext& context) {
  if (!tensor.defined()) {
    description.set_undefined(true);
    return;
  }
  check_sendable(tensor);
  {
    const at::NoGradGuard no_grad;
    if (tensor.is_sparse()) {
      encode_sparse(tensor.detach(), target, description, context);
    } else {
      encode_strided(tensor.detach(), target, description, context);
    }
  }
  if (!tensor.requires_grad()) return;
  description.set_requires_grad(true);
  if (TensorHook* hook = context.tensor_hook()) {
    const auto edge = hook->on_write(tensor);
    if (!edge.has_value()) return;
    description.set_edge(*edge);
    if (!tensor.device().is_cpu()) write_device(tensor.device(), *description.mutable_origin());
  } else {
    context.note_unfollowed_gradient();
  }
}

at::Tensor decode_tensor(const proto::Tensor& description, DecodeContext& context,
                         const ValuePath& path) {
  at::Tensor tensor = TensorReader(context, path).read(description);
  if (!description.has_edge() || !tensor.defined() || !tensor.requires_grad()) return tensor;
  TensorHook* hook = context.tensor_hook();
  if (hook == nullptr) return tensor;
  std::optional<c10::Device> origin = c10::Device(c10::kCPU);
  if (description.has_origin()) origin = read_device(description.origin());
  if (!origin.has_value()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat(path.text(), ": a tensor comes from a device that cannot be"));
  }
  hook->on_read(tensor, description.edge(), *origin);
  return tensor;
}

at::Tensor allocate_receive_tensor(at::IntArrayRef sizes, at::IntArrayRef strides,
                                   at::ScalarType type) {
  const std::size_t size =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  if (size >= ReceivePool::kMinBytes) {
    auto block = ReceivePool::of_process().allocate(size);
    // By the tensor: it may be sent on, to a worker of this process too.
    block->claim();
    return tensor_in(std::move(block), sizes, strides, type);
  }
  return at::empty_strided(sizes, strides, at::TensorOptions().dtype(type).device(at::kCPU));
}

}  // namespace sinew::internal
