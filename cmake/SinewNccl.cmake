# Whether the NCCL plane is built with NCCL and CUDA (SINEW_WITH_NCCL), and what they are.
#
# The headers alone are enough to check that its calls of both compile (SINEW_NCCL_HEADERS): tests/device does.

# Where a wheel's LibTorch has its companions.
set(sinew_nvidia "${TORCH_INSTALL_PREFIX}/../nvidia")
set(sinew_cuda_hints "$ENV{CUDA_HOME}" /usr/local/cuda "${sinew_nvidia}/cu13" "${sinew_nvidia}/cuda_runtime")
find_path(SINEW_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${sinew_cuda_hints} PATH_SUFFIXES include)
# The library beside the header, before a libnccl.so elsewhere: they may be of different versions.
find_library(SINEW_CUDART_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12 NAMES_PER_DIR
             HINTS ${sinew_cuda_hints} PATH_SUFFIXES lib64 lib)
find_path(SINEW_NCCL_INCLUDE_DIR nccl.h HINTS "${sinew_nvidia}/nccl" ${sinew_cuda_hints} PATH_SUFFIXES include)
find_library(SINEW_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
             HINTS "${sinew_nvidia}/nccl" ${sinew_cuda_hints} PATH_SUFFIXES lib64 lib)
mark_as_advanced(SINEW_CUDA_INCLUDE_DIR SINEW_CUDART_LIBRARY SINEW_NCCL_INCLUDE_DIR SINEW_NCCL_LIBRARY)

# The macros of nccl.h read "#define NCCL_MAJOR 2".
function(sinew_nccl_version variable)
  set(version)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${SINEW_NCCL_INCLUDE_DIR}/nccl.h" line REGEX "^#define NCCL_${part} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND version "${number}")
  endforeach()
  list(JOIN version "." version)
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()

set(sinew_nccl_missing)
if(NOT SINEW_CUDA_INCLUDE_DIR)
  list(APPEND sinew_nccl_missing "there is no cuda_runtime_api.h")
endif()
if(NOT SINEW_NCCL_INCLUDE_DIR)
  list(APPEND sinew_nccl_missing "there is no nccl.h")
else()
  sinew_nccl_version(SINEW_NCCL_VERSION)
  if(SINEW_NCCL_VERSION VERSION_LESS 2.27)
    list(APPEND sinew_nccl_missing "NCCL ${SINEW_NCCL_VERSION} is older than 2.27")
  endif()
endif()
# For people, and for the check that only needs them.
list(JOIN sinew_nccl_missing ", " SINEW_NCCL_HEADERS_MISSING)
if(NOT TARGET torch_cuda)
  list(APPEND sinew_nccl_missing "LibTorch has no CUDA")
endif()
if(NOT SINEW_CUDART_LIBRARY)
  list(APPEND sinew_nccl_missing "there is no libcudart")
endif()
if(NOT SINEW_NCCL_LIBRARY)
  list(APPEND sinew_nccl_missing "there is no libnccl")
endif()
list(JOIN sinew_nccl_missing ", " sinew_nccl_missing)

set(sinew_nccl_default ON)
if(sinew_nccl_missing)
  set(sinew_nccl_default OFF)
endif()
option(SINEW_WITH_NCCL "Build the NCCL plane with NCCL and CUDA" ${sinew_nccl_default})
if(SINEW_WITH_NCCL AND sinew_nccl_missing)
  message(FATAL_ERROR "SINEW_WITH_NCCL is on, but: ${sinew_nccl_missing}.")
elseif(SINEW_WITH_NCCL)
  message(STATUS "NCCL plane: with NCCL ${SINEW_NCCL_VERSION}")
elseif(sinew_nccl_missing)
  message(STATUS "NCCL plane: without NCCL, since ${sinew_nccl_missing}")
else()
  message(STATUS "NCCL plane: without NCCL, since SINEW_WITH_NCCL is off")
endif()

file(GLOB SINEW_NCCL_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/rpc/planes/nccl/real/*.cc")
