include(GoogleTest)
find_package(GTest REQUIRED)

# The headers that nearly every test includes, compiled once. Its flags must be those of the tests.
file(WRITE "${PROJECT_BINARY_DIR}/generated/test_pch.cc.in" "// Only there to compile the headers.\n")
configure_file("${PROJECT_BINARY_DIR}/generated/test_pch.cc.in" "${PROJECT_BINARY_DIR}/generated/test_pch.cc" COPYONLY)
add_library(sinew_test_pch OBJECT "${PROJECT_BINARY_DIR}/generated/test_pch.cc")
target_link_libraries(sinew_test_pch PUBLIC GTest::gtest GTest::gmock Sinew::abseil Sinew::libtorch)
target_precompile_headers(sinew_test_pch PRIVATE
    <chrono> <functional> <map> <memory> <string> <thread> <vector>
    <gmock/gmock.h> <gtest/gtest.h> <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/cord.h>
    <absl/strings/str_cat.h>)

# Builds the programs of the tests labelled unit.
add_custom_target(unit_tests)

# sinew_test(<name> SRCS ... [LIBS ...] [LABELS ...] [TIMEOUT seconds])
#
# One program of GoogleTest tests, and one test of ctest that runs it. Labels:
#   unit     in one process, seconds at most (what a test without labels is)
#   process  starts processes
#   slow     takes more than ten seconds
#   grpc     runs gRPC, whose packaged library ThreadSanitizer knows nothing of
#   style    looks at the sources
#
# Most tests wait more than they compute, so tools/test runs two for each core. PROCESSORS is 2 for what computes all the time
# and 4 for what keeps two cores busy.
function(sinew_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SRCS;LIBS;LABELS")
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
  if(SINEW_SANITIZE)
    # What the presets of the sanitizers leave out is not built there either.
    if("slow" IN_LIST arg_LABELS OR (SINEW_SANITIZE MATCHES thread AND arg_LABELS MATCHES "grpc|process"))
      return()
    endif()
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
  endif()
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest GTest::gtest_main Sinew::libtorch)
  # gRPC's own target adds -pthread, with which the precompiled headers do not match.
  if(NOT "grpc" IN_LIST arg_LABELS AND NOT SINEW_TEST_WITHOUT_PCH)
    target_precompile_headers(${name} REUSE_FROM sinew_test_pch)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  if("slow" IN_LIST arg_LABELS AND NOT "process" IN_LIST arg_LABELS)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
  if("unit" IN_LIST arg_LABELS)
    add_dependencies(unit_tests ${name})
  endif()
  sinew_sanitizer_environment(${name})
endfunction()

# sinew_test_folder(<prefix> [LIBS ...] [LABELS ...] [EXCLUDE regex])
#
# Each *_test.cc of this folder and its subfolders is a program <prefix>_<file>; the other sources are linked to all of
# them, as objects (a linker would drop suites that nothing refers to from a library). A name that begins or ends so
# gets a label: grpc_*, *_process_test.cc, *_slow_test.cc. Fuzzers (fuzz_*.cc) and what EXCLUDE
# matches are left out.
function(sinew_test_folder prefix)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXCLUDE" "LIBS;LABELS")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "*.cc")
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(support ${sources})
  list(FILTER support EXCLUDE REGEX "_test\\.cc$|/fuzz_[^/]*$")
  set(libraries ${arg_LIBS})
  if(support)
    add_library(${prefix}_test_objects OBJECT ${support})
    target_link_libraries(${prefix}_test_objects PUBLIC ${arg_LIBS} GTest::gmock GTest::gtest Sinew::libtorch)
    if(NOT SINEW_TEST_WITHOUT_PCH)
      target_precompile_headers(${prefix}_test_objects REUSE_FROM sinew_test_pch)
    endif()
    list(APPEND libraries ${prefix}_test_objects)
  endif()
  foreach(source IN LISTS tests)
    get_filename_component(stem "${source}" NAME_WE)
    set(labels ${arg_LABELS})
    if(stem MATCHES "^grpc_")
      list(APPEND labels grpc)
    endif()
    if(stem MATCHES "_(process|slow)_test$")
      list(APPEND labels ${CMAKE_MATCH_1})
    endif()
    sinew_test(${prefix}_${stem} SRCS "${source}" LIBS ${libraries} LABELS ${labels})
  endforeach()
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
