#include "sinew/groups/internal/reduction.h"

#include <cstdint>
#include <limits>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/call_signature.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

[[noreturn]] void refuse(at::ScalarType type, ReduceOp op, std::string_view instead) {
  throw RpcError(
      ErrorCode::kUnimplemented,
      absl::StrCat("tensors of ", std::string(c10::toString(type)), " cannot be reduced by ",
                   std::string(name_of(op)), ": ", std::string(instead)));
}

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

bool orders(ReduceOp op) { return op == ReduceOp::kMin || op == ReduceOp::kMax; }

/// The bits of a floating-point number as a whole number of the same order, and back: the magnitude
/// of a negative one counts the other way.
void turn_negatives(at::Tensor& bits) {
  const std::int64_t magnitude = bits.scalar_type() == at::kLong
                                     ? std::numeric_limits<std::int64_t>::max()
                                     : std::numeric_limits<std::int32_t>::max();
  bits = at::where(bits.lt(0), bits.bitwise_xor(magnitude), bits);
}

at::Tensor to_ordered(const at::Tensor& tensor, ReduceOp op) {
  const bool is_double = tensor.scalar_type() == at::kDouble;
  const at::Tensor values = tensor.to(is_double ? at::kDouble : at::kFloat);
  at::Tensor bits = values.view(is_double ? at::kLong : at::kInt);
  turn_negatives(bits);
  // The largest and the smallest number are bits of a NaN, of which a sign is all that differs.
  const std::int64_t largest = is_double ? std::numeric_limits<std::int64_t>::max()
                                         : std::numeric_limits<std::int32_t>::max();
  return bits.masked_fill_(values.isnan(), op == ReduceOp::kMax ? largest : -largest - 1);
}

at::Tensor from_ordered(at::Tensor bits) {
  turn_negatives(bits);
  return bits.view(bits.scalar_type() == at::kLong ? at::kDouble : at::kFloat);
}

void combine(const at::Tensor& sum, const at::Tensor& part, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      sum.add_(part);
      break;
    case ReduceOp::kProduct:
      sum.mul_(part);
      break;
    case ReduceOp::kMin:
      at::minimum_out(const_cast<at::Tensor&>(sum), sum, part);
      break;
    case ReduceOp::kMax:
      at::maximum_out(const_cast<at::Tensor&>(sum), sum, part);
      break;
  }
}

}  // namespace

void check_reducible(at::ScalarType type, ReduceOp op) {
  if (c10::isQIntType(type) || type == at::ScalarType::Undefined) {
    refuse(type, op, "dequantize them");
  }
  if (type == at::kBool && !orders(op)) refuse(type, op, "use MAX for \"any\" and MIN for \"all\"");
  if (c10::isComplexType(type) && orders(op)) refuse(type, op, "complex numbers have no order");
  if (op == ReduceOp::kAverage && !c10::isFloatingType(type) && !c10::isComplexType(type)) {
    refuse(type, op,
           "the mean of whole numbers is none: convert them to floating point, or use "
           "SUM and divide");
  }
}

c10d::ReduceOp::RedOpType c10d_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAverage:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
  }
  return c10d::ReduceOp::UNUSED;
}

ReduceOp reduce_op_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAverage;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    default:
      throw RpcError(ErrorCode::kUnimplemented,
                     "a group reduces by SUM, AVG, PRODUCT, MIN and MAX");
  }
}

Reduction plan_reduction(const Backend& backend, const at::Tensor& tensor, ReduceOp op) {
  const at::ScalarType type = tensor.scalar_type();
  check_reducible(type, op);
  if (backend.reduces(type, op)) return {tensor, op, false, false};
  Reduction reduction{tensor, op, false, false};
  // In single precision: the sum of many halves may be out of their range.
  if (is_half(type) && op == ReduceOp::kAverage) reduction.buffer = tensor.to(at::kFloat);
  if (op == ReduceOp::kAverage) {
    reduction.op = ReduceOp::kSum;
    reduction.divides = true;
  }
  if (c10::isFloatingType(type) && orders(op)) {
    reduction.buffer = to_ordered(tensor, op);
    reduction.is_ordered = true;
  }
  const auto fits = [&] { return backend.reduces(reduction.buffer.scalar_type(), reduction.op); };
  if (fits()) return reduction;
  if (type == at::kBool) {
    reduction.buffer = tensor.view(at::kByte);
  } else if (is_half(type)) {
    reduction.buffer = tensor.to(at::kFloat);
  } else if (type == at::kShort) {
    // The lower half of what an int32 holds is what an int16 would.
    reduction.buffer = tensor.to(at::kInt);
  } else if (c10::isComplexType(type) && reduction.op == ReduceOp::kSum) {
    reduction.buffer = at::view_as_real(tensor);
  }
  if (fits()) return reduction;
  refuse(type, op,
         absl::StrCat("the backend ", std::string(backend.name()),
                      " cannot, and there is no type that it could be converted to"));
}

void store_reduced(const Reduction& reduction, int size, const at::Tensor& tensor) {
  if (reduction.is_ordered) {
    tensor.copy_(from_ordered(reduction.buffer));
    return;
  }
  if (reduction.divides) reduction.buffer.div_(size);
  if (reduction.buffer.data_ptr() == tensor.data_ptr()) return;
  tensor.copy_(reduction.buffer);
}

void reduce_here(const std::vector<at::Tensor>& parts, ReduceOp op, const at::Tensor& output) {
  check_reducible(output.scalar_type(), op);
  const bool widens = is_half(output.scalar_type());
  const at::Tensor sum = widens ? parts.front().to(at::kFloat) : parts.front().clone();
  for (std::size_t at = 1; at < parts.size(); ++at) combine(sum, parts[at], op);
  if (op == ReduceOp::kAverage) sum.div_(static_cast<std::int64_t>(parts.size()));
  output.copy_(sum.view_as(output));
}

}  // namespace sinew::internal
