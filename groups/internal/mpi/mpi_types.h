#pragma once

#include <mpi.h>

#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "torch/csrc/distributed/c10d/Types.hpp"

namespace sinew::internal {

/// A type and an operation with which MPI combines elements.
struct MpiReduction {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
};

/// LibTorch's types and operations as MPI's. MPI has neither of the 16-bit floating-point types:
/// they have a type and operations of their own, which compute in float and round each result. MIN
/// and MAX of floating-point numbers are Sinew's too: NaN where any is NaN. bool combines as
/// numbers do that are 0 or 1. Thread-safe.
class MpiTypes {
 public:
  /// MPI must have begun. Their definitions end with MPI.
  static absl::StatusOr<MpiTypes> make();

  /// kUnimplemented names what MPI cannot combine; averages are among it.
  absl::StatusOr<MpiReduction> reduction(c10::ScalarType type, c10d::ReduceOp::RedOpType op) const;

  /// A type of as many bytes, for elements that only move. MPI_DATATYPE_NULL if there is none.
  static MPI_Datatype moved(std::size_t element_bytes);

 private:
  /// MIN and MAX of floating-point numbers.
  struct Ends {
    MPI_Op min = MPI_OP_NULL;
    MPI_Op max = MPI_OP_NULL;

    /// MPI_OP_NULL for others.
    MPI_Op op(c10d::ReduceOp::RedOpType op) const;
  };
  /// MPI's operations on one of the 16-bit types.
  struct Custom {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Op sum = MPI_OP_NULL;
    MPI_Op product = MPI_OP_NULL;
    Ends ends;

    MPI_Op op(c10d::ReduceOp::RedOpType op) const;
  };
  template <class Element>
  static absl::StatusOr<Ends> make_ends();
  template <class Element>
  static absl::StatusOr<Custom> make_custom();

  Ends float_;
  Ends double_;
  Custom half_;
  Custom bfloat16_;
};

}  // namespace sinew::internal
