# Finds what Sinew links, with a text for people when it is not there. Installed: SinewConfig.cmake uses it too.

# In a package: an optional one may be missing, and who requires it reads why. The file that includes this one goes on.
macro(sinew_not_found)
  if(CMAKE_FIND_PACKAGE_NAME STREQUAL "Sinew")
    string(CONCAT Sinew_NOT_FOUND_MESSAGE ${ARGN})
    return()
  endif()
  message(FATAL_ERROR ${ARGN})
endmacro()

macro(sinew_find package debian_package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    sinew_not_found("Sinew needs ${package} and CMake does not find it. On Debian: apt-get install ${debian_package}. "
                    "Elsewhere: set CMAKE_PREFIX_PATH.")
  endif()
endmacro()

set(sinew_imported IMPORTED)
if(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
  list(APPEND sinew_imported GLOBAL)
endif()

sinew_find(Threads libc6-dev)
sinew_find(absl libabsl-dev)
sinew_find(OpenSSL libssl-dev)
sinew_find(Protobuf "libprotobuf-dev protobuf-compiler")
sinew_find(gRPC "libgrpc++-dev protobuf-compiler-grpc" CONFIG)
# A wheel's LibTorch works too: CMAKE_PREFIX_PATH=$(python3 -c "import torch; print(torch.utils.cmake_prefix_path)")
sinew_find(Torch libtorch-dev)

# Only when asked for: the library has effects on every program that is linked with it (docs/ucx.md).
if(SINEW_WITH_UCX AND NOT TARGET Sinew::ucx)
  find_path(SINEW_UCX_INCLUDE_DIR ucp/api/ucp.h)
  find_library(SINEW_UCP_LIBRARY ucp)
  find_library(SINEW_UCS_LIBRARY ucs)
  mark_as_advanced(SINEW_UCX_INCLUDE_DIR SINEW_UCP_LIBRARY SINEW_UCS_LIBRARY)
  if(NOT (SINEW_UCX_INCLUDE_DIR AND SINEW_UCP_LIBRARY AND SINEW_UCS_LIBRARY))
    sinew_not_found("SINEW_WITH_UCX is on and CMake does not find UCX. On Debian: apt-get install libucx-dev. "
                    "Elsewhere: set CMAKE_PREFIX_PATH.")
  endif()
  add_library(Sinew::ucx INTERFACE ${sinew_imported})
  target_link_libraries(Sinew::ucx INTERFACE "${SINEW_UCP_LIBRARY}" "${SINEW_UCS_LIBRARY}")
  target_include_directories(Sinew::ucx SYSTEM INTERFACE "${SINEW_UCX_INCLUDE_DIR}")
endif()

# The mpi backend of process groups, also only when asked for: LibTorch's packages leave theirs out.
if(SINEW_WITH_MPI AND NOT TARGET Sinew::mpi)
  # CMake finds MPI for languages that are in use, and the program's own may be C++ alone.
  enable_language(C)
  find_package(MPI COMPONENTS C QUIET)
  if(NOT MPI_C_FOUND)
    sinew_not_found("SINEW_WITH_MPI is on and CMake does not find MPI. On Debian: apt-get install libopenmpi-dev. "
                    "Elsewhere: set MPI_HOME or CMAKE_PREFIX_PATH.")
  endif()
  add_library(Sinew::mpi INTERFACE ${sinew_imported})
  target_link_libraries(Sinew::mpi INTERFACE MPI::MPI_C)
  # The C++ bindings that the standard has dropped, and that need a library of their own.
  target_compile_definitions(Sinew::mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
endif()

if(SINEW_CUDA AND NOT TARGET torch_cuda)
  message(FATAL_ERROR "SINEW_CUDA is on, but the LibTorch that CMake found has no CUDA: "
                      "set CMAKE_PREFIX_PATH to one that has.")
endif()

# The parts of LibTorch that hold tensors and autograd, with the ABI that it was built for. Its own target `torch` adds
# flags that force every library to be linked into every program.
if(NOT TARGET Sinew::libtorch)
  add_library(Sinew::libtorch INTERFACE ${sinew_imported})
  target_link_libraries(Sinew::libtorch INTERFACE torch_cpu c10)
  target_include_directories(Sinew::libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  separate_arguments(sinew_torch_flags NATIVE_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(Sinew::libtorch INTERFACE ${sinew_torch_flags})

  add_library(Sinew::abseil INTERFACE ${sinew_imported})
  target_link_libraries(Sinew::abseil INTERFACE
      absl::any_invocable absl::cord absl::flat_hash_map absl::flat_hash_set absl::hash absl::span absl::status
      absl::statusor absl::str_format absl::strings absl::synchronization absl::time)
endif()
