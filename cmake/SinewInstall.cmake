# find_package(Sinew CONFIG): libraries, public headers and what these include, and the package files.
include(CMakePackageConfigHelpers)

# sinew_reachable_headers(<variable> <header> ...): these and every header of Sinew that they include, as paths from the
# root of the source tree. Internal headers that no public one needs are not installed.
function(sinew_reachable_headers variable)
  set(queue ${ARGN})
  set(reached)
  while(queue)
    list(POP_FRONT queue header)
    file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}" "${header}")
    if(name IN_LIST reached)
      continue()
    endif()
    list(APPEND reached "${name}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${name}")
    file(STRINGS "${header}" includes REGEX "^#include \"sinew/")
    foreach(line IN LISTS includes)
      string(REGEX REPLACE "^#include \"sinew/([^\"]*)\".*" "\\1" included "${line}")
      if(EXISTS "${PROJECT_SOURCE_DIR}/${included}")
        list(APPEND queue "${PROJECT_SOURCE_DIR}/${included}")
      endif()
    endforeach()
  endwhile()
  set(${variable} ${reached} PARENT_SCOPE)
endfunction()

# Components, for packages that are installed one by one (SinewPackages): sinew_dev, sinew_runtime (shared libraries),
# sinew_tools.
get_property(sinew_libraries GLOBAL PROPERTY SINEW_LIBRARIES)
get_property(sinew_libraries_apart GLOBAL PROPERTY SINEW_LIBRARIES_APART)
install(TARGETS ${sinew_libraries} ${sinew_libraries_apart} EXPORT SinewTargets
        ARCHIVE COMPONENT sinew_dev
        LIBRARY COMPONENT sinew_runtime NAMELINK_COMPONENT sinew_dev)

get_property(sinew_public_headers GLOBAL PROPERTY SINEW_PUBLIC_HEADERS)
sinew_reachable_headers(sinew_headers ${sinew_public_headers})
foreach(header IN LISTS sinew_headers)
  get_filename_component(folder "${header}" DIRECTORY)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/sinew/${folder}"
          COMPONENT sinew_dev)
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/protos/sinew" DESTINATION "${CMAKE_INSTALL_DATADIR}/sinew/protos"
        COMPONENT sinew_dev FILES_MATCHING PATTERN "*.proto")

# What find_package(Sinew COMPONENTS ...) and pkg-config know, from the bottom upward. Sinew::sinew is all but testing.
set(SINEW_COMPONENTS rpc ${SINEW_LAYERS} sinew testing)
list(TRANSFORM SINEW_COMPONENTS REPLACE "^sinew_" "")
list(JOIN SINEW_COMPONENTS ", " SINEW_COMPONENTS_TEXT)

set(sinew_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Sinew")
install(EXPORT SinewTargets NAMESPACE Sinew:: DESTINATION "${sinew_package_dir}" COMPONENT sinew_dev)
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/SinewConfig.cmake.in" "${PROJECT_BINARY_DIR}/SinewConfig.cmake"
                              INSTALL_DESTINATION "${sinew_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/SinewConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/SinewConfig.cmake" "${PROJECT_BINARY_DIR}/SinewConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/SinewDependencies.cmake" "${CMAKE_CURRENT_LIST_DIR}/SinewPrecompile.cmake"
        DESTINATION "${sinew_package_dir}" COMPONENT sinew_dev)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT sinew_dev)
# For pip, and for PYTHONPATH; Debian's package has it where Python looks. In no package.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/clients/python/" DESTINATION "${CMAKE_INSTALL_DATADIR}/sinew/python"
        COMPONENT sinew_python_source FILES_MATCHING PATTERN "sinew_client/*.py" PATTERN "sinew_client/py.typed"
        PATTERN pyproject.toml PATTERN README.md PATTERN __pycache__ EXCLUDE PATTERN tests EXCLUDE)

if(SINEW_RUN)
  install(TARGETS sinew-run sinew-ctl sinew-registrar EXPORT SinewToolsTargets RUNTIME COMPONENT sinew_tools)
  # As Debian wants them: compressed, and without times. man reads both kinds.
  find_program(SINEW_GZIP gzip)
  mark_as_advanced(SINEW_GZIP)
  foreach(tool sinew-run sinew-ctl sinew-registrar)
    set(page "${PROJECT_SOURCE_DIR}/packaging/man/${tool}.1")
    if(SINEW_GZIP)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page}")
      file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/packaging/man")
      execute_process(COMMAND "${SINEW_GZIP}" -9nc "${page}" OUTPUT_FILE "${PROJECT_BINARY_DIR}/packaging/man/${tool}.1.gz"
                      COMMAND_ERROR_IS_FATAL ANY)
      set(page "${PROJECT_BINARY_DIR}/packaging/man/${tool}.1.gz")
    endif()
    install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT sinew_tools)
  endforeach()
  # Apart: whoever has the libraries alone has no file that would be missing.
  install(EXPORT SinewToolsTargets NAMESPACE Sinew:: DESTINATION "${sinew_package_dir}" COMPONENT sinew_tools)
endif()

include(SinewPkgConfig)
