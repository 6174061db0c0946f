#include "sinew/groups/internal/mpi/mpi_process_group.h"

#include <climits>
#include <cstdint>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "sinew/groups/internal/mpi/mpi_error.h"
#include "sinew/groups/internal/mpi/mpi_pieces.h"
#include "sinew/groups/internal/mpi/mpi_types.h"
#include "sinew/groups/internal/mpi/mpi_work.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using Tensors = MpiProcessGroup::Tensors;

[[noreturn]] void refuse(const char* name, absl::string_view why) {
  throw RpcError(ErrorCode::kInvalidArgument, absl::StrCat(name, " over MPI: ", why));
}

void require_dense(const char* name, const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || tensor.layout() != c10::Layout::Strided ||
      !tensor.is_contiguous()) {
    refuse(name, "it takes contiguous tensors in host memory");
  }
}

const at::Tensor& only(const char* name, const Tensors& tensors) {
  if (tensors.size() != 1) refuse(name, absl::StrCat("it takes one tensor, not ", tensors.size()));
  require_dense(name, tensors[0]);
  return tensors[0];
}

// One for each rank, all like `model`.
const Tensors& for_each_rank(const char* name, const std::vector<Tensors>& lists, int size,
                             const at::Tensor& model) {
  if (lists.size() != 1 || lists[0].size() != static_cast<std::size_t>(size)) {
    refuse(name, absl::StrCat("it takes one list of ", size, " tensors, one for each rank"));
  }
  for (const at::Tensor& tensor : lists[0]) {
    require_dense(name, tensor);
    if (tensor.numel() != model.numel() || tensor.scalar_type() != model.scalar_type()) {
      refuse(name, "all tensors must have the same type and number of elements");
    }
  }
  return lists[0];
}

int as_count(const char* name, std::int64_t elements) {
  if (elements > INT_MAX) {
    refuse(name, absl::StrCat("MPI counts to ", INT_MAX, ", and there are ", elements,
                              " elements: do it in parts"));
  }
  return static_cast<int>(elements);
}

// Elements that only move.
struct Amount {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int count = 0;
};

MPI_Datatype moved_type(const char* name, const at::Tensor& tensor) {
  const MPI_Datatype type = MpiTypes::moved(tensor.element_size());
  if (type == MPI_DATATYPE_NULL) {
    refuse(name, absl::StrCat("it cannot move ", c10::toString(tensor.scalar_type())));
  }
  return type;
}

// As larger elements, where MPI cannot count its own.
Amount amount_of(const char* name, const at::Tensor& tensor) {
  Amount amount{moved_type(name, tensor), 0};
  std::int64_t count = tensor.numel();
  for (std::size_t bytes = tensor.element_size() * 2; count > INT_MAX && count % 2 == 0;
       bytes *= 2) {
    const MPI_Datatype larger = MpiTypes::moved(bytes);
    if (larger == MPI_DATATYPE_NULL) break;
    amount.type = larger;
    count /= 2;
  }
  amount.count = as_count(name, count);
  return amount;
}

// Counts and offsets for each rank, as MPI wants them: counts first.
std::vector<int> places_of(const char* name, const std::vector<std::int64_t>& counts) {
  std::vector<int> places;
  for (const std::int64_t count : counts) places.push_back(as_count(name, count));
  std::int64_t offset = 0;
  for (const std::int64_t count : counts) {
    places.push_back(as_count(name, offset));
    offset += count;
  }
  return places;
}

std::vector<std::int64_t> sizes_of(const char* name, const Tensors& tensors, int size) {
  if (tensors.size() != static_cast<std::size_t>(size)) {
    refuse(name, absl::StrCat("it takes a tensor for each of the ", size, " ranks"));
  }
  std::vector<std::int64_t> counts;
  for (const at::Tensor& tensor : tensors) {
    require_dense(name, tensor);
    if (tensor.scalar_type() != tensors[0].scalar_type()) {
      refuse(name, "all tensors must have the same type");
    }
    counts.push_back(tensor.numel());
  }
  return counts;
}

}  // namespace

MpiProcessGroup::MpiProcessGroup(std::shared_ptr<MpiCommunicator> communicator)
    : C10dBackend(communicator->rank(), communicator->size()),
      communicator_(std::move(communicator)) {}

MpiOperation MpiProcessGroup::operation(const char* name, Tensors tensors) const {
  MpiOperation operation(name, communicator_);
  operation.tensors = std::move(tensors);
  return operation;
}

template <class StartMpi>
MpiProcessGroup::WorkPtr MpiProcessGroup::start(c10d::OpType type, MpiOperation operation,
                                                Tensors outputs, StartMpi&& start_mpi) const {
  const absl::Status status =
      mpi_status(start_mpi(communicator_->handle(), &operation.request), operation.name);
  if (!status.ok()) throw_error(status);
  return c10::make_intrusive<MpiWork>(type, std::move(operation), std::move(outputs));
}

int MpiProcessGroup::require_rank(const char* name, std::int64_t rank) const {
  if (rank < 0 || rank >= getSize()) {
    refuse(name, absl::StrCat("there is no rank ", rank, " in a group of ", getSize()));
  }
  return static_cast<int>(rank);
}

int MpiProcessGroup::require_tag(const char* name, int tag) const {
  const int most = communicator_->runtime().most_tag();
  if (tag < 0 || tag > most) {
    refuse(name, absl::StrCat("tags are from 0 to ", most, ", not ", tag));
  }
  return tag;
}

MpiReduction MpiProcessGroup::reduction(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  absl::StatusOr<MpiReduction> reduction =
      communicator_->runtime().types().reduction(tensor.scalar_type(), op.op_);
  if (!reduction.ok()) throw_error(reduction.status());
  return *reduction;
}

MpiProcessGroup::WorkPtr MpiProcessGroup::broadcast(Tensors& tensors,
                                                    const c10d::BroadcastOptions& options) {
  static constexpr char kName[] = "broadcast";
  const at::Tensor& tensor = only(kName, tensors);
  const int root = require_rank(kName, options.rootRank);
  const Amount amount = amount_of(kName, tensor);
  return start(c10d::OpType::BROADCAST, operation(kName, {}), {tensor},
               [&](MPI_Comm comm, MPI_Request* request) {
                 return MPI_Ibcast(tensor.data_ptr(), amount.count, amount.type, root, comm,
                                   request);
               });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::allreduce(Tensors& tensors,
                                                    const c10d::AllreduceOptions& options) {
  static constexpr char kName[] = "all_reduce";
  const at::Tensor& tensor = only(kName, tensors);
  const MpiReduction how = reduction(tensor, options.reduceOp);
  const int count = as_count(kName, tensor.numel());
  return start(c10d::OpType::ALLREDUCE, operation(kName, {}), {tensor},
               [&](MPI_Comm comm, MPI_Request* request) {
                 return MPI_Iallreduce(MPI_IN_PLACE, tensor.data_ptr(), count, how.type, how.op,
                                       comm, request);
               });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::reduce(Tensors& tensors,
                                                 const c10d::ReduceOptions& options) {
  static constexpr char kName[] = "reduce";
  const at::Tensor& tensor = only(kName, tensors);
  const int root = require_rank(kName, options.rootRank);
  const MpiReduction how = reduction(tensor, options.reduceOp);
  const int count = as_count(kName, tensor.numel());
  const void* const from = root == getRank() ? MPI_IN_PLACE : tensor.data_ptr();
  void* const to = root == getRank() ? tensor.data_ptr() : nullptr;
  return start(c10d::OpType::REDUCE, operation(kName, {}), {tensor},
               [&](MPI_Comm comm, MPI_Request* request) {
                 return MPI_Ireduce(from, to, count, how.type, how.op, root, comm, request);
               });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions&) {
  static constexpr char kName[] = "all_gather";
  const at::Tensor& input = only(kName, inputs);
  const MpiPieces pieces(for_each_rank(kName, outputs, getSize(), input));
  MpiOperation gathering = operation(kName, {input, pieces.memory()});
  if (pieces.is_copy()) gathering.finish = [pieces] { pieces.copy_out(); };
  return gather_to_all(pieces.memory(), input, std::move(gathering), outputs[0]);
}

MpiProcessGroup::WorkPtr MpiProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::AllgatherOptions&) {
  static constexpr char kName[] = "all_gather";
  require_dense(kName, output);
  require_dense(kName, input);
  if (output.numel() != input.numel() * getSize() || output.scalar_type() != input.scalar_type()) {
    refuse(kName, "the output must have the input's type, and its size times the group's");
  }
  return gather_to_all(output, input, operation(kName, {input}), {output});
}

MpiProcessGroup::WorkPtr MpiProcessGroup::gather_to_all(const at::Tensor& output,
                                                        const at::Tensor& input,
                                                        MpiOperation gathering,
                                                        Tensors outputs) const {
  const Amount amount = amount_of(gathering.name, input);
  return start(c10d::OpType::ALLGATHER, std::move(gathering), std::move(outputs),
               [&](MPI_Comm comm, MPI_Request* request) {
                 return MPI_Iallgather(input.data_ptr(), amount.count, amount.type,
                                       output.data_ptr(), amount.count, amount.type, comm, request);
               });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                 const c10d::GatherOptions& options) {
  static constexpr char kName[] = "gather";
  const at::Tensor& input = only(kName, inputs);
  const int root = require_rank(kName, options.rootRank);
  const Amount amount = amount_of(kName, input);
  MpiOperation gathering = operation(kName, {input});
  Tensors results;
  void* to = nullptr;
  if (root == getRank()) {
    results = for_each_rank(kName, outputs, getSize(), input);
    const MpiPieces pieces(results);
    to = pieces.memory().data_ptr();
    gathering.tensors.push_back(pieces.memory());
    if (pieces.is_copy()) gathering.finish = [pieces] { pieces.copy_out(); };
  }
  return start(c10d::OpType::GATHER, std::move(gathering), std::move(results),
               [&](MPI_Comm comm, MPI_Request* request) {
                 return MPI_Igather(input.data_ptr(), amount.count, amount.type, to, amount.count,
                                    amount.type, root, comm, request);
               });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                  const c10d::ScatterOptions& options) {
  static constexpr char kName[] = "scatter";
  const at::Tensor& output = only(kName, outputs);
  const int root = require_rank(kName, options.rootRank);
  const Amount amount = amount_of(kName, output);
  MpiOperation scattering = operation(kName, {});
  const void* from = nullptr;
  if (root == getRank()) {
    const MpiPieces pieces(for_each_rank(kName, inputs, getSize(), output));
    pieces.copy_in();
    from = pieces.memory().data_ptr();
    scattering.tensors.push_back(pieces.memory());
  }
  return start(c10d::OpType::SCATTER, std::move(scattering), {output},
               [&](MPI_Comm comm, MPI_Request* request) {
                 return MPI_Iscatter(from, amount.count, amount.type, output.data_ptr(),
                                     amount.count, amount.type, root, comm, request);
               });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  static constexpr char kName[] = "reduce_scatter";
  const at::Tensor& output = only(kName, outputs);
  if (inputs.size() != 1) refuse(kName, "it takes one list of tensors");
  const std::vector<std::int64_t> counts = sizes_of(kName, inputs[0], getSize());
  const at::Tensor& own = inputs[0][static_cast<std::size_t>(getRank())];
  if (own.numel() != output.numel() || own.scalar_type() != output.scalar_type()) {
    refuse(kName, "the output must be like the input of this rank");
  }
  const MpiPieces pieces(inputs[0]);
  pieces.copy_in();
  return scatter_sums(output, pieces.memory(), counts, options);
}

MpiProcessGroup::WorkPtr MpiProcessGroup::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  static constexpr char kName[] = "reduce_scatter";
  require_dense(kName, output);
  require_dense(kName, input);
  if (input.numel() != output.numel() * getSize() || input.scalar_type() != output.scalar_type()) {
    refuse(kName, "the input must have the output's type, and its size times the group's");
  }
  return scatter_sums(
      output, input, std::vector<std::int64_t>(static_cast<std::size_t>(getSize()), output.numel()),
      options);
}

MpiProcessGroup::WorkPtr MpiProcessGroup::scatter_sums(
    const at::Tensor& output, const at::Tensor& input, const std::vector<std::int64_t>& counts,
    const c10d::ReduceScatterOptions& options) const {
  static constexpr char kName[] = "reduce_scatter";
  const MpiReduction how = reduction(output, options.reduceOp);
  MpiOperation scattering = operation(kName, {input});
  scattering.places = places_of(kName, counts);
  const int* const places = scattering.places.data();
  return start(c10d::OpType::REDUCE_SCATTER, std::move(scattering), {output},
               [&](MPI_Comm comm, MPI_Request* request) {
                 return MPI_Ireduce_scatter(input.data_ptr(), output.data_ptr(), places, how.type,
                                            how.op, comm, request);
               });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::alltoall(Tensors& outputs, Tensors& inputs,
                                                   const c10d::AllToAllOptions&) {
  static constexpr char kName[] = "all_to_all";
  const std::vector<std::int64_t> sent = sizes_of(kName, inputs, getSize());
  const std::vector<std::int64_t> received = sizes_of(kName, outputs, getSize());
  if (outputs[0].scalar_type() != inputs[0].scalar_type()) {
    refuse(kName, "all tensors must have the same type");
  }
  const MpiPieces from(inputs);
  const MpiPieces to(outputs);
  from.copy_in();
  MpiOperation exchanging = operation(kName, {to.memory(), from.memory()});
  if (to.is_copy()) exchanging.finish = [to] { to.copy_out(); };
  return exchange(to.memory(), from.memory(), received, sent, std::move(exchanging), outputs);
}

MpiProcessGroup::WorkPtr MpiProcessGroup::exchange(const at::Tensor& output,
                                                   const at::Tensor& input,
                                                   const std::vector<std::int64_t>& received,
                                                   const std::vector<std::int64_t>& sent,
                                                   MpiOperation exchanging, Tensors outputs) const {
  const MPI_Datatype type = moved_type(exchanging.name, input);
  exchanging.places = places_of(exchanging.name, sent);
  const std::vector<int> arriving = places_of(exchanging.name, received);
  exchanging.places.insert(exchanging.places.end(), arriving.begin(), arriving.end());
  const int* const places = exchanging.places.data();
  const int ranks = getSize();
  return start(c10d::OpType::ALLTOALL, std::move(exchanging), std::move(outputs),
               [&](MPI_Comm comm, MPI_Request* request) {
                 return MPI_Ialltoallv(input.data_ptr(), places, places + ranks, type,
                                       output.data_ptr(), places + 2 * ranks, places + 3 * ranks,
                                       type, comm, request);
               });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::send(Tensors& tensors, int to, int tag) {
  static constexpr char kName[] = "send";
  const at::Tensor& tensor = only(kName, tensors);
  require_rank(kName, to);
  require_tag(kName, tag);
  const Amount amount = amount_of(kName, tensor);
  return start(
      c10d::OpType::SEND, operation(kName, {}), {tensor}, [&](MPI_Comm comm, MPI_Request* request) {
        return MPI_Isend(tensor.data_ptr(), amount.count, amount.type, to, tag, comm, request);
      });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::recv(Tensors& tensors, int from, int tag) {
  return receive(c10d::OpType::RECV, tensors, require_rank("recv", from), tag);
}

MpiProcessGroup::WorkPtr MpiProcessGroup::recvAnysource(Tensors& tensors, int tag) {
  return receive(c10d::OpType::RECVANYSOURCE, tensors, MPI_ANY_SOURCE, tag);
}

MpiProcessGroup::WorkPtr MpiProcessGroup::receive(c10d::OpType op, Tensors& tensors, int from,
                                                  int tag) const {
  static constexpr char kName[] = "recv";
  const at::Tensor& tensor = only(kName, tensors);
  require_tag(kName, tag);
  const Amount amount = amount_of(kName, tensor);
  MpiOperation receiving = operation(kName, {});
  receiving.expected = MpiExpected{amount.type, amount.count};
  return start(op, std::move(receiving), {tensor}, [&](MPI_Comm comm, MPI_Request* request) {
    return MPI_Irecv(tensor.data_ptr(), amount.count, amount.type, from, tag, comm, request);
  });
}

MpiProcessGroup::WorkPtr MpiProcessGroup::barrier(const c10d::BarrierOptions&) {
  return start(c10d::OpType::BARRIER, operation("barrier", {}), {},
               [](MPI_Comm comm, MPI_Request* request) { return MPI_Ibarrier(comm, request); });
}

}  // namespace sinew::internal
