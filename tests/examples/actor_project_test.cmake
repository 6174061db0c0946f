# Installs Sinew into an empty folder, builds the actor of examples/actor_learner against it, as a project of its own, and
# has it play for the learner of this build.
set(prefix "${WORK}/prefix")
file(REMOVE_RECURSE "${WORK}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
endfunction()

# A list, which an argument would not survive as.
set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${LAUNCHER}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")
run("${CMAKE_COMMAND}" -S "${ACTOR}" -B "${WORK}/build" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DTorch_DIR=${TORCH}")
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${PYTHON}" "${TEST}" "${LEARNER}" "${WORK}/build/actor" SmallTest)

# What it has built is large.
file(REMOVE_RECURSE "${WORK}")
