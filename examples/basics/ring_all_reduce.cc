#include "sinew/examples/basics/ring_all_reduce.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/empty.h"

namespace basics {
namespace {

struct Ring {
  explicit Ring(const sinew::ProcessGroup& group)
      : size(group.size()),
        rank(group.rank()),
        left((rank + size - 1) % size),
        right((rank + 1) % size) {}

  /// So many places to the left of this rank.
  int back(int places) const { return ((rank - places) % size + size) % size; }

  const int size;
  const int rank;
  const int left;
  const int right;
};

/// Of a flat tensor in as many chunks as there are ranks; the last ones may be shorter, or empty.
at::Tensor chunk_of(const at::Tensor& flat, int chunk, int chunks) {
  const std::int64_t length = (flat.numel() + chunks - 1) / chunks;
  const std::int64_t begin = std::min(flat.numel(), chunk * length);
  return flat.narrow(0, begin, std::min(length, flat.numel() - begin));
}

/// Sends to the right while it receives from the left. Both ends know which chunks are empty.
void exchange(const at::Tensor& out, const at::Tensor& in, const Ring& ring,
              const sinew::ProcessGroup& group) {
  const bool sends = out.numel() > 0;
  sinew::Future<void> sent;
  if (sends) sent = group.isend(out, ring.right);
  if (in.numel() > 0) group.recv(in, ring.left);
  if (sends) sent.wait();
}

}  // namespace

void ring_all_reduce_whole(const at::Tensor& send, const at::Tensor& receive,
                           const sinew::ProcessGroup& group) {
  const Ring ring(group);
  at::Tensor outgoing = send.clone();
  at::Tensor incoming = send.clone();
  const at::Tensor sum = send.clone();
  for (int step = 0; step + 1 < ring.size; ++step) {
    const sinew::Future<void> sent = group.isend(outgoing, ring.right);
    group.recv(incoming, ring.left);
    sum.add_(incoming);
    sent.wait();
    // What has come is what goes on.
    std::swap(outgoing, incoming);
  }
  receive.copy_(sum);
}

void ring_all_reduce(const at::Tensor& tensor, const sinew::ProcessGroup& group) {
  const Ring ring(group);
  const at::Tensor flat = tensor.contiguous().view(-1);
  const at::Tensor buffer =
      at::empty(chunk_of(flat, 0, ring.size).sizes(), flat.options().requires_grad(false));
  for (int step = 0; step + 1 < ring.size; ++step) {
    const at::Tensor sum = chunk_of(flat, ring.back(step + 1), ring.size);
    const at::Tensor in = buffer.narrow(0, 0, sum.numel());
    exchange(chunk_of(flat, ring.back(step), ring.size), in, ring, group);
    sum.add_(in);
  }
  // Now this rank has the sum of the chunk to its right.
  for (int step = 0; step + 1 < ring.size; ++step) {
    exchange(chunk_of(flat, ring.back(step - 1), ring.size),
             chunk_of(flat, ring.back(step), ring.size), ring, group);
  }
  if (!tensor.is_contiguous()) tensor.copy_(flat.view(tensor.sizes()));
}

}  // namespace basics
