#include "sinew/groups/internal/mpi/mpi_types.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "c10/util/BFloat16.h"
#include "c10/util/Half.h"
#include "sinew/groups/internal/mpi/mpi_error.h"

namespace sinew::internal {
namespace {

using Op = c10d::ReduceOp::RedOpType;

struct Sum {
  template <class T>
  static T combine(T a, T b) {
    return a + b;
  }
};
struct Product {
  template <class T>
  static T combine(T a, T b) {
    return a * b;
  }
};
// A NaN stays one, as in LibTorch. MPI's own forget it or not, as its place has it.
struct Min {
  template <class T>
  static T combine(T a, T b) {
    return a != a || a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T combine(T a, T b) {
    return a != a || a > b ? a : b;
  }
};

// An MPI_User_function. Those of 16 bits are combined in float.
template <class Element, class How>
void combine(void* in, void* in_and_out, int* count, MPI_Datatype*) {
  using Wide = std::conditional_t<sizeof(Element) == 2, float, Element>;
  const auto* const from = static_cast<const Element*>(in);
  auto* const to = static_cast<Element*>(in_and_out);
  std::transform(from, from + *count, to, to, [](Element a, Element b) {
    return Element(How::combine(static_cast<Wide>(a), static_cast<Wide>(b)));
  });
}

absl::Status define(MPI_User_function* function, MPI_Op* op) {
  return mpi_status(MPI_Op_create(function, /*commute=*/1, op), "MPI_Op_create");
}

bool is_bitwise(Op op) {
  return op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR || op == c10d::ReduceOp::BXOR;
}

MPI_Op op_of_numbers(Op op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return MPI_SUM;
    case c10d::ReduceOp::PRODUCT:
      return MPI_PROD;
    case c10d::ReduceOp::MIN:
      return MPI_MIN;
    case c10d::ReduceOp::MAX:
      return MPI_MAX;
    case c10d::ReduceOp::BAND:
      return MPI_BAND;
    case c10d::ReduceOp::BOR:
      return MPI_BOR;
    case c10d::ReduceOp::BXOR:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;
  }
}

MPI_Op op_of_bools(Op op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
      return MPI_LOR;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
      return MPI_LAND;
    case c10d::ReduceOp::BXOR:
      return MPI_LXOR;
    default:
      return MPI_OP_NULL;
  }
}

bool has_order(Op op) { return op == c10d::ReduceOp::MIN || op == c10d::ReduceOp::MAX; }

/// Sums and products of floating-point and complex numbers.
MPI_Op op_of_field(Op op) {
  return is_bitwise(op) || has_order(op) ? MPI_OP_NULL : op_of_numbers(op);
}

const char* name_of(Op op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return "SUM";
    case c10d::ReduceOp::AVG:
      return "AVG";
    case c10d::ReduceOp::PRODUCT:
      return "PRODUCT";
    case c10d::ReduceOp::MIN:
      return "MIN";
    case c10d::ReduceOp::MAX:
      return "MAX";
    case c10d::ReduceOp::BAND:
      return "BAND";
    case c10d::ReduceOp::BOR:
      return "BOR";
    case c10d::ReduceOp::BXOR:
      return "BXOR";
    default:
      return "this operation";
  }
}

}  // namespace

template <class Element>
absl::StatusOr<MpiTypes::Custom> MpiTypes::make_custom() {
  Custom custom;
  absl::Status made = mpi_status(MPI_Type_contiguous(sizeof(Element), MPI_BYTE, &custom.type),
                                 "MPI_Type_contiguous");
  if (made.ok()) made = mpi_status(MPI_Type_commit(&custom.type), "MPI_Type_commit");
  if (made.ok()) made = define(&combine<Element, Sum>, &custom.sum);
  if (made.ok()) made = define(&combine<Element, Product>, &custom.product);
  const absl::StatusOr<Ends> ends = made.ok() ? make_ends<Element>() : made;
  if (!ends.ok()) return ends.status();
  custom.ends = *ends;
  return custom;
}

template <class Element>
absl::StatusOr<MpiTypes::Ends> MpiTypes::make_ends() {
  Ends ends;
  absl::Status made = define(&combine<Element, Min>, &ends.min);
  if (made.ok()) made = define(&combine<Element, Max>, &ends.max);
  if (!made.ok()) return made;
  return ends;
}

absl::StatusOr<MpiTypes> MpiTypes::make() {
  MpiTypes types;
  absl::StatusOr<Custom> half = make_custom<c10::Half>();
  if (!half.ok()) return half.status();
  absl::StatusOr<Custom> bfloat16 = make_custom<c10::BFloat16>();
  if (!bfloat16.ok()) return bfloat16.status();
  const absl::StatusOr<Ends> of_float = make_ends<float>();
  if (!of_float.ok()) return of_float.status();
  const absl::StatusOr<Ends> of_double = make_ends<double>();
  if (!of_double.ok()) return of_double.status();
  types.float_ = *of_float;
  types.double_ = *of_double;
  types.half_ = *half;
  types.bfloat16_ = *bfloat16;
  return types;
}

MPI_Op MpiTypes::Custom::op(Op op) const {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return sum;
    case c10d::ReduceOp::PRODUCT:
      return product;
    default:
      return ends.op(op);
  }
}

MPI_Op MpiTypes::Ends::op(Op op) const {
  if (!has_order(op)) return MPI_OP_NULL;
  return op == c10d::ReduceOp::MIN ? min : max;
}

absl::StatusOr<MpiReduction> MpiTypes::reduction(c10::ScalarType type, Op op) const {
  const auto choose = [type, op](MPI_Datatype of_mpi, MPI_Op how) -> absl::StatusOr<MpiReduction> {
    if (how != MPI_OP_NULL) return MpiReduction{of_mpi, how};
    return absl::UnimplementedError(absl::StrCat("the mpi backend does not combine ",
                                                 c10::toString(type), " by ", name_of(op)));
  };
  switch (type) {
    case c10::ScalarType::Float:
      return choose(MPI_FLOAT, has_order(op) ? float_.op(op) : op_of_field(op));
    case c10::ScalarType::Double:
      return choose(MPI_DOUBLE, has_order(op) ? double_.op(op) : op_of_field(op));
    case c10::ScalarType::Half:
      return choose(half_.type, half_.op(op));
    case c10::ScalarType::BFloat16:
      return choose(bfloat16_.type, bfloat16_.op(op));
    case c10::ScalarType::ComplexFloat:
      return choose(MPI_C_FLOAT_COMPLEX, op_of_field(op));
    case c10::ScalarType::ComplexDouble:
      return choose(MPI_C_DOUBLE_COMPLEX, op_of_field(op));
    case c10::ScalarType::Byte:
      return choose(MPI_UINT8_T, op_of_numbers(op));
    case c10::ScalarType::Char:
      return choose(MPI_INT8_T, op_of_numbers(op));
    case c10::ScalarType::Short:
      return choose(MPI_INT16_T, op_of_numbers(op));
    case c10::ScalarType::Int:
      return choose(MPI_INT32_T, op_of_numbers(op));
    case c10::ScalarType::Long:
      return choose(MPI_INT64_T, op_of_numbers(op));
    case c10::ScalarType::Bool:
      return choose(MPI_C_BOOL, op_of_bools(op));
    default:
      return choose(MPI_DATATYPE_NULL, MPI_OP_NULL);
  }
}

MPI_Datatype MpiTypes::moved(std::size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    case 8:
      return MPI_UINT64_T;
    case 16:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      return MPI_DATATYPE_NULL;
  }
}

}  // namespace sinew::internal
