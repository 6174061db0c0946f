# The package, as CMake and pkg-config find it.
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")

set(prefix "${WORK}/prefix")
file(REMOVE_RECURSE "${WORK}")

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")

file(GLOB_RECURSE generated "${prefix}/*.pb.h")
if(generated)
  message(FATAL_ERROR "generated headers were installed: ${generated}")
endif()
foreach(name value rpc)
  if(NOT EXISTS "${prefix}/share/sinew/protos/sinew/${name}.proto")
    message(FATAL_ERROR "${name}.proto was not installed")
  endif()
endforeach()

# The tests that docs/testing.md shows: blocks of code that begin with their names.
file(READ "${SOURCE}/docs/testing.md" page)
foreach(name learner_test order_test)
  string(FIND "${page}" "// ${name}.cc\n" begin)
  string(SUBSTRING "${page}" ${begin} -1 program)
  string(FIND "${program}" "```" end)
  string(SUBSTRING "${program}" 0 ${end} program)
  file(WRITE "${WORK}/page/${name}.cc" "${program}")
endforeach()

# By CMake; C++17, and C++20 with precompiled headers.
configure("${CMAKE_CURRENT_LIST_DIR}/consumer" "${WORK}/build" "-DCMAKE_PREFIX_PATH=${prefix}"
          "-DPAGE=${WORK}/page")
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/consumer" "file://${WORK}/rendezvous" ${GROUPS})
run("${WORK}/build/learner_test")
run("${WORK}/build/order_test")
run("${WORK}/build/calls" "file://${WORK}/rendezvous_20")
if(NOT output MATCHES "C\\+\\+ 20")
  message(FATAL_ERROR "calls is no program of C++20: ${output}")
endif()

# By pkg-config: the other compiler, if there is one, and C++20.
if(PKG_CONFIG)
  set(ENV{PKG_CONFIG_PATH} "${prefix}/lib/pkgconfig:$ENV{PKG_CONFIG_PATH}")
  file(GLOB_RECURSE found "${prefix}/*/sinew.pc")
  get_filename_component(folder "${found}" DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} "${folder}")
  run("${PKG_CONFIG}" --cflags --libs sinew)
  separate_arguments(flags UNIX_COMMAND "${output}")
  list(GET COMPILERS -1 compiler)
  run("${compiler}" -std=c++20 -O1 "${CMAKE_CURRENT_LIST_DIR}/calls.cc" ${flags} -o "${WORK}/by_pkg_config")
  run("${WORK}/by_pkg_config" "file://${WORK}/rendezvous_pkg_config")
  if(NOT output MATCHES "^Sinew ${VERSION}, C\\+\\+ 20")
    message(FATAL_ERROR "another version than ${VERSION}, or no C++20: ${output}")
  endif()
  run("${PKG_CONFIG}" --libs sinew-testing)
  if(NOT output MATCHES "-lsinew_testing.* -lsinew ")
    message(FATAL_ERROR "sinew-testing.pc does not link its library before Sinew's: ${output}")
  endif()
  run("${PKG_CONFIG}" --modversion sinew)
  string(STRIP "${output}" output)
  if(NOT output STREQUAL VERSION)
    message(FATAL_ERROR "sinew.pc has version ${output} rather than ${VERSION}")
  endif()
endif()

# It works where it was installed, and with what it finds there.
if(WITH_RUN)
  run("${prefix}/bin/sinew-run" --nproc 2 "${CMAKE_COMMAND}" -E true)
endif()
