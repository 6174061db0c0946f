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
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
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

get_property(sinew_libraries GLOBAL PROPERTY SINEW_LIBRARIES)
install(TARGETS ${sinew_libraries} EXPORT SinewTargets)

get_property(sinew_public_headers GLOBAL PROPERTY SINEW_PUBLIC_HEADERS)
sinew_reachable_headers(sinew_headers ${sinew_public_headers})
foreach(header IN LISTS sinew_headers)
  get_filename_component(folder "${header}" DIRECTORY)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/sinew/${folder}")
endforeach()

set(sinew_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Sinew")
install(EXPORT SinewTargets NAMESPACE Sinew:: DESTINATION "${sinew_package_dir}")
configure_package_config_file(cmake/SinewConfig.cmake.in "${PROJECT_BINARY_DIR}/SinewConfig.cmake"
                              INSTALL_DESTINATION "${sinew_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/SinewConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/SinewConfig.cmake" "${PROJECT_BINARY_DIR}/SinewConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/SinewDependencies.cmake"
        DESTINATION "${sinew_package_dir}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
