# Shared libraries, and a program that opens libraries of its own with methods in them.
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")

set(prefix "${WORK}/first_prefix")
file(REMOVE_RECURSE "${WORK}")

configure("${SOURCE}" "${WORK}/sinew" -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=OFF -DSINEW_EXAMPLES=OFF
          -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_INSTALL_PREFIX=${prefix}" "-DSINEW_RUN=${WITH_RUN}" "${REUSE_OBJECTS}")
run("${CMAKE_COMMAND}" --build "${WORK}/sinew")
run("${CMAKE_COMMAND}" --install "${WORK}/sinew")

file(GLOB_RECURSE static "${prefix}/*.a")
if(static)
  message(FATAL_ERROR "static libraries were installed: ${static}")
endif()

# What was installed does not need the folder it was built in, nor to stay in its place.
file(REMOVE_RECURSE "${WORK}/sinew")
file(RENAME "${prefix}" "${WORK}/prefix")
set(prefix "${WORK}/prefix")
if(WITH_RUN)
  run("${prefix}/bin/sinew-run" --nproc 2 "${CMAKE_COMMAND}" -E true)
endif()

file(GLOB_RECURSE library "${prefix}/*/libsinew_rpc.so.${VERSION}")
if(NOT library)
  message(FATAL_ERROR "there is no libsinew_rpc.so.${VERSION} in ${prefix}")
endif()
string(REGEX REPLACE "\\.[0-9]+$" "" soname "libsinew_rpc.so.${VERSION}")
run("${READELF}" -d "${library}")
if(NOT output MATCHES "SONAME[^\n]*\\[${soname}\\]")
  message(FATAL_ERROR "the SONAME is not ${soname}:\n${output}")
endif()

configure("${CMAKE_CURRENT_LIST_DIR}/plugin" "${WORK}/plugin" "-DCMAKE_PREFIX_PATH=${prefix}")
run("${CMAKE_COMMAND}" --build "${WORK}/plugin")
run("${WORK}/plugin/host" "file://${WORK}/rendezvous" "${WORK}/plugin/libmethods.so" "${WORK}/plugin/libcalls.so")

# What it has built is large.
file(REMOVE_RECURSE "${WORK}")
