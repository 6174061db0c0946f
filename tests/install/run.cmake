# For the scripts of this folder.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# configure(<source> <folder> ...): with the same CMake, compiler and LibTorch.
function(configure source folder)
  run("${CMAKE_COMMAND}" -S "${source}" -B "${folder}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
      "-DTorch_DIR=${TORCH}" ${ARGN})
endfunction()

# For configure(): a further build of Sinew takes the objects of this one, which took minutes to make. How they are put together
# and what programs need to know of them is new.
set(REUSE_OBJECTS "-DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CURRENT_LIST_DIR}/reuse_objects" "-DCMAKE_UNITY_BUILD=${UNITY}"
    "-DCMAKE_UNITY_BUILD_BATCH_SIZE=${UNITY_SIZE}" "-DSINEW_WITH_UCX=${UCX}" "-DSINEW_WITH_MPI=${MPI}")
set(ENV{SINEW_OBJECTS} "${BUILD}")
set(ENV{SINEW_OBJECTS_PROVE} "${PROVE}")
