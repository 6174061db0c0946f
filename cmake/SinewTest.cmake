include(GoogleTest)
find_package(GTest REQUIRED)

# The headers that nearly every test includes, compiled once: those of GoogleTest and Abseil, and with LibTorch's and all of
# Sinew's for tests of the upper layers.
function(sinew_test_headers name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBS;HEADERS")
  set(source "${PROJECT_BINARY_DIR}/generated/${name}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// Only there to compile the headers.\n" @ONLY)
  add_library(${name} OBJECT "${source}")
  target_link_libraries(${name} PUBLIC GTest::gtest GTest::gmock Sinew::abseil Sinew::libtorch ${arg_LIBS})
  target_precompile_headers(${name} PRIVATE
      <chrono> <functional> <map> <memory> <string> <thread> <vector>
      <gmock/gmock.h> <gtest/gtest.h> <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/cord.h>
      <absl/strings/str_cat.h> ${arg_HEADERS})
endfunction()
sinew_test_headers(sinew_test_pch)
sinew_test_headers(sinew_test_pch_all LIBS sinew HEADERS <ATen/ATen.h> <sinew/sinew.h>)
target_compile_options(sinew_test_pch_all PRIVATE ${SINEW_UNOPTIMIZED})

# sinew_use_test_headers(<target> <library>...): the precompiled headers for a target that links these.
function(sinew_use_test_headers target)
  if(SINEW_TEST_WITHOUT_PCH)
    return()
  endif()
  set(headers sinew_test_pch)
  foreach(library sinew sinew_test_cluster)
    if(library IN_LIST ARGN)
      set(headers sinew_test_pch_all)
    endif()
  endforeach()
  if(headers STREQUAL sinew_test_pch_all)
    target_compile_options(${target} PRIVATE ${SINEW_UNOPTIMIZED})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# Builds the programs of the tests labelled unit.
add_custom_target(unit_tests)

set(SINEW_UNITS_ELSEWHERE "" CACHE STRING "Folders of tests/ whose unit tests another preset has")
set(SINEW_PROVE "autograd;gpu;launch;link;publication;registry;rref;streams;threads" CACHE STRING
    "Folders of tests/ whose proofs are run: explorations of pure machines, also with planted bugs, and what GPUs run compiles")

# Whether the proofs of this folder are in this build.
macro(sinew_proves variable)
  get_filename_component(${variable} "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  if(${variable} IN_LIST SINEW_PROVE)
    set(${variable} TRUE)
  else()
    set(${variable} FALSE)
  endif()
endmacro()

# sinew_test(<name> SRCS ... [LIBS ...] [LABELS ...] [TIMEOUT seconds] [SHARDS n] [HEADERS_OF target])
#
# One program of GoogleTest tests, and one test of ctest that runs it, or one for each of the n parts of it. HEADERS_OF: the
# precompiled headers of a program with the same libraries, instead of those of most tests. Labels:
#   unit     in one process, seconds at most (what a test without labels is)
#   process  starts processes
#   slow     takes more than ten seconds
#   grpc     runs gRPC, whose packaged library ThreadSanitizer knows nothing of
#   style    looks at the sources
#   nightly  repeats, for longer or in another way, what other tests show: for .ci/full
#
# Most tests wait more than they compute, so tools/test runs two for each core. PROCESSORS is 2 for what computes all the time
# and 4 for what keeps two cores busy.
function(sinew_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;SHARDS;HEADERS_OF" "SRCS;LIBS;LABELS")
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  # Five times and more what they take on an idle machine: hosts have been three times slower, and busy beside that.
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if("slow" IN_LIST arg_LABELS AND arg_TIMEOUT LESS 1200)
    set(arg_TIMEOUT 1200)
  endif()
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  if(arg_LABELS STREQUAL "unit" AND folder IN_LIST SINEW_UNITS_ELSEWHERE)
    return()
  endif()
  if(SINEW_SANITIZE)
    # What the presets of the sanitizers leave out is not built there either.
    if("slow" IN_LIST arg_LABELS OR (SINEW_SANITIZE MATCHES thread AND arg_LABELS MATCHES "grpc|process"))
      return()
    endif()
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
  endif()
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest GTest::gtest_main Sinew::libtorch)
  if(arg_HEADERS_OF)
    target_precompile_headers(${name} REUSE_FROM ${arg_HEADERS_OF})
    target_compile_options(${name} PRIVATE ${SINEW_UNOPTIMIZED})
  else()
    sinew_use_test_headers(${name} ${arg_LIBS})
  endif()
  set(tests ${name})
  if(arg_SHARDS GREATER 1)
    set(tests)
    foreach(shard RANGE 1 ${arg_SHARDS})
      list(APPEND tests ${name}_${shard})
    endforeach()
  endif()
  foreach(test IN LISTS tests)
    add_test(NAME ${test} COMMAND ${name})
    set_tests_properties(${test} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
    if("slow" IN_LIST arg_LABELS AND NOT "process" IN_LIST arg_LABELS)
      set_tests_properties(${test} PROPERTIES PROCESSORS 2)
    endif()
    sinew_sanitizer_environment(${test})
    if(NOT test STREQUAL name)
      string(REPLACE "${name}_" "" shard ${test})
      math(EXPR shard "${shard} - 1")
      set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT GTEST_TOTAL_SHARDS=${arg_SHARDS} GTEST_SHARD_INDEX=${shard})
    endif()
  endforeach()
  if("unit" IN_LIST arg_LABELS)
    add_dependencies(unit_tests ${name})
  endif()
endfunction()

# sinew_test_folder(<prefix> [LIBS ...] [LABELS ...] [EXCLUDE regex] [ALONE stem...] [SHARDS n] [GRPC_SHARDS n] [TIMEOUT seconds])
#
# The *_test.cc of this folder and its subfolders are one program, <prefix>_test, since each program costs a link. Programs of
# their own are <prefix>_grpc_test of what begins with grpc_, and one for each of ALONE and of *_process_test.cc and
# *_slow_test.cc, which get that label. The other sources are linked to all of them, as objects (a linker would drop suites that
# nothing refers to from a library). Fuzzers (fuzz_*.cc) and what EXCLUDE matches are left out. SHARDS is for <prefix>_test, GRPC_SHARDS for <prefix>_grpc_test.
function(sinew_test_folder prefix)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXCLUDE;SHARDS;GRPC_SHARDS;TIMEOUT" "LIBS;LABELS;ALONE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "*.cc")
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  set(support ${sources})
  list(FILTER support EXCLUDE REGEX "_test\\.cc$|/fuzz_[^/]*$")
  list(FILTER sources INCLUDE REGEX "_test\\.cc$")
  set(libraries ${arg_LIBS})
  if(support)
    add_library(${prefix}_test_objects OBJECT EXCLUDE_FROM_ALL ${support})
    target_link_libraries(${prefix}_test_objects PUBLIC ${arg_LIBS} GTest::gmock GTest::gtest Sinew::libtorch)
    sinew_use_test_headers(${prefix}_test_objects ${arg_LIBS})
    list(APPEND libraries ${prefix}_test_objects)
  endif()
  set(together)
  set(with_grpc)
  foreach(source IN LISTS sources)
    get_filename_component(stem "${source}" NAME_WE)
    if(stem MATCHES "_(process|slow)_test$" OR stem IN_LIST arg_ALONE)
      set(labels ${arg_LABELS})
      if(stem MATCHES "^grpc_")
        list(APPEND labels grpc)
      endif()
      if(stem MATCHES "_(process|slow)_test$")
        list(APPEND labels ${CMAKE_MATCH_1})
      endif()
      sinew_test(${prefix}_${stem} SRCS "${source}" LIBS ${libraries} LABELS ${labels})
    elseif(stem MATCHES "^grpc_")
      list(APPEND with_grpc "${source}")
    else()
      list(APPEND together "${source}")
    endif()
  endforeach()
  if(together)
    sinew_test(${prefix}_test SRCS ${together} LIBS ${libraries} LABELS ${arg_LABELS} SHARDS ${arg_SHARDS}
               TIMEOUT ${arg_TIMEOUT})
  endif()
  if(with_grpc)
    sinew_test(${prefix}_grpc_test SRCS ${with_grpc} LIBS ${libraries} LABELS ${arg_LABELS} grpc SHARDS ${arg_GRPC_SHARDS})
  endif()
endfunction()

# The compiler of the build, and the other one.
set(SINEW_TEST_COMPILERS "${CMAKE_CXX_COMPILER}")
find_program(SINEW_OTHER_GXX NAMES g++)
find_program(SINEW_OTHER_CLANG NAMES clang++ clang++-19 clang++-14)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND SINEW_OTHER_CLANG)
  list(APPEND SINEW_TEST_COMPILERS "${SINEW_OTHER_CLANG}")
elseif(CMAKE_CXX_COMPILER_ID MATCHES Clang AND SINEW_OTHER_GXX)
  list(APPEND SINEW_TEST_COMPILERS "${SINEW_OTHER_GXX}")
endif()

function(sinew_sanitizer_environment test)
  if(SINEW_SANITIZE MATCHES thread)
    # Suppressions go by both stacks of a report, and a short history would not have the older one.
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
                 "TSAN_OPTIONS=halt_on_error=1:history_size=7:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
  elseif(SINEW_SANITIZE MATCHES address)
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
                 "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1"
                 "UBSAN_OPTIONS=print_stacktrace=1"
                 "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0")
  endif()
endfunction()
