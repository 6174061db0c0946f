set(prefix "${WORK}/prefix")
file(REMOVE_RECURSE "${WORK}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
endfunction()

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

run("${CMAKE_COMMAND}" -S "${CONSUMER}" -B "${WORK}/build" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DTorch_DIR=${TORCH}")
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/consumer" "file://${WORK}/rendezvous" ${GROUPS})

# It works where it was installed, and with what it finds there.
if(WITH_RUN)
  run("${prefix}/bin/sinew-run" --nproc 2 "${CMAKE_COMMAND}" -E true)
endif()
