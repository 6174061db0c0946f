# Sinew's sources as part of another project.
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")

file(REMOVE_RECURSE "${WORK}")
configure("${CMAKE_CURRENT_LIST_DIR}/embedded" "${WORK}/build" "-DSINEW_SOURCE=${SOURCE}" "${REUSE_OBJECTS}")
run("${CMAKE_COMMAND}" --build "${WORK}/build" --target calls)
run("${WORK}/build/calls" "file://${WORK}/rendezvous")

# What it has built is large.
file(REMOVE_RECURSE "${WORK}")
