#include "sinew/tests/mpi/mpi_ranks.h"

#include <cstdio>
#include <exception>
#include <numeric>
#include <stdexcept>

#include "sinew/rpc/base/error.h"

namespace sinew::testing {

void check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void check_error(const std::function<void()>& run, const std::string& part) {
  try {
    run();
  } catch (const RpcError& error) {
    check(error.message().find(part) != std::string::npos,
          "the error is '" + error.message() + "', without '" + part + "'");
    return;
  }
  throw std::runtime_error("there is no error, such as '" + part + "'");
}

void check_equal(const at::Tensor& tensor, const at::Tensor& expected, const std::string& what) {
  check(tensor.scalar_type() == expected.scalar_type() && tensor.sizes() == expected.sizes(),
        what + ": the type or the size is wrong");
  const bool is_rounded =
      at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
  const double tolerance = tensor.element_size() == 2 ? 2e-2 : 1e-5;
  check(is_rounded ? at::allclose(tensor, expected, tolerance, tolerance)
                   : at::equal(tensor, expected),
        what + ": the values are wrong");
}

at::Tensor input_of(int rank, at::ScalarType type, at::IntArrayRef sizes) {
  // Small whole numbers, so that sums and products of few ranks fit each type.
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  const at::Tensor places = at::arange(elements, at::kLong);
  at::Tensor values = (places * 7 + rank * 5).remainder(4) - (places + rank).remainder(2);
  if (type == at::kByte) values = values.abs();
  if (type == at::kBool) return values.gt(0).reshape(sizes);
  return values.to(type).reshape(sizes);
}

std::unique_ptr<internal::Backend> make_group(const std::string& name, std::vector<int> job_ranks,
                                              std::chrono::milliseconds timeout) {
  const internal::MpiPlace place = internal::mpi_place(timeout);
  if (job_ranks.empty()) {
    job_ranks.resize(static_cast<std::size_t>(place.size));
    std::iota(job_ranks.begin(), job_ranks.end(), 0);
  }
  internal::BackendRequest request;
  const auto self = std::find(job_ranks.begin(), job_ranks.end(), place.rank);
  check(self != job_ranks.end(), "this rank is not in the group");
  request.rank = static_cast<int>(self - job_ranks.begin());
  request.size = static_cast<int>(job_ranks.size());
  request.job_ranks = std::move(job_ranks);
  request.timeout = timeout;
  request.group = name;
  return internal::make_mpi_backend(request);
}

void wait(const WorkPtr& work) { check(work->wait(kNoTimeout), "wait() is false"); }

}  // namespace sinew::testing

int main(int argc, char** argv) {
  using namespace sinew::testing;
  Cases cases;
  add_operations(cases);
  add_ends(cases);
  add_groups(cases);
  if (argc != 2 || cases.count(argv[1]) == 0) {
    std::fprintf(stderr, "usage: mpi_ranks CASE\n");
    return 2;
  }
  try {
    cases.at(argv[1])();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_ranks %s: %s\n", argv[1], error.what());
    return 1;
  }
  return 0;
}
