# Debian packages, by `cmake --build --preset package --target package`: libsinew-dev, sinew-tools, python3-sinew-client and,
# with shared libraries, libsinew<version>. They are for the release of Debian on which they were made. tools/test-packages makes, installs and uses
# them.
find_program(SINEW_DPKG_QUERY dpkg-query)
mark_as_advanced(SINEW_DPKG_QUERY)
if(NOT SINEW_DPKG_QUERY OR NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

# sinew_depend(<package> ...): appends to the variable sinew_depends of the caller. Static libraries are of use with the
# libraries that they were compiled against alone: with those of the same minor version.
function(sinew_depend)
  foreach(package IN LISTS ARGN)
    execute_process(COMMAND "${SINEW_DPKG_QUERY}" --show "--showformat=\${Version}" ${package}
                    OUTPUT_VARIABLE version ERROR_QUIET)
    if(version MATCHES "^([0-9]+:)?([0-9]+)\\.([0-9]+)")
      math(EXPR next "${CMAKE_MATCH_3} + 1")
      set(major "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
      list(APPEND sinew_depends "${package} (>= ${major}.${CMAKE_MATCH_3}~)" "${package} (<< ${major}.${next}~)")
    else()
      list(APPEND sinew_depends ${package})
    endif()
  endforeach()
  set(sinew_depends "${sinew_depends}" PARENT_SCOPE)
endfunction()

# What every package of Debian has in its folder of documents. EXCLUDE_FROM_ALL: in packages only.
function(sinew_install_documents component package)
  set(folder "${PROJECT_BINARY_DIR}/packaging/${package}")
  set(sinew_debian_package "${package}")
  configure_file("${PROJECT_SOURCE_DIR}/packaging/changelog.in" "${folder}/changelog.Debian" @ONLY)
  # Without times, so that packages of the same sources are the same.
  execute_process(COMMAND gzip -9nc "${folder}/changelog.Debian" OUTPUT_FILE "${folder}/changelog.Debian.gz"
                  COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND gzip -9nc "${PROJECT_SOURCE_DIR}/CHANGELOG.md" OUTPUT_FILE "${folder}/changelog.gz"
                  COMMAND_ERROR_IS_FATAL ANY)
  install(FILES "${PROJECT_SOURCE_DIR}/packaging/copyright" "${folder}/changelog.Debian.gz" "${folder}/changelog.gz"
          DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/${package}" COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

# sinew_package(<component> <package> DESCRIPTION text [SECTION s] [DEPENDS ...] [RECOMMENDS ...] [ALL])
#
# ALL: for every architecture. Otherwise the shared libraries that its programs need are found by dpkg-shlibdeps.
macro(sinew_package component package)
  cmake_parse_arguments(arg "ALL" "DESCRIPTION;SECTION" "DEPENDS;RECOMMENDS" ${ARGN})
  string(TOUPPER "CPACK_DEBIAN_${component}" sinew_cpack)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(${sinew_cpack}_PACKAGE_NAME ${package})
  set(${sinew_cpack}_DESCRIPTION "${arg_DESCRIPTION}")
  set(${sinew_cpack}_PACKAGE_SECTION ${arg_SECTION})
  list(JOIN arg_DEPENDS ", " ${sinew_cpack}_PACKAGE_DEPENDS)
  list(JOIN arg_RECOMMENDS ", " ${sinew_cpack}_PACKAGE_RECOMMENDS)
  if(arg_ALL)
    set(${sinew_cpack}_PACKAGE_ARCHITECTURE all)
  else()
    set(${sinew_cpack}_PACKAGE_SHLIBDEPS ON)
  endif()
  sinew_install_documents(${component} ${package})
endmacro()

set(SINEW_PACKAGE_CONTACT "Sinew maintainers <maintainers@sinew.invalid>" CACHE STRING
    "Who answers for the Debian packages: NAME <ADDRESS>")
mark_as_advanced(SINEW_PACKAGE_CONTACT)
file(TIMESTAMP "${PROJECT_SOURCE_DIR}/CHANGELOG.md" sinew_debian_date "%a, %d %b %Y %H:%M:%S +0000" UTC)

set(CPACK_COMPONENTS_ALL)
set(sinew_depends)
sinew_depend(libabsl-dev libgrpc++-dev libprotobuf-dev libtorch-dev)
if(SINEW_WITH_GLOO)
  sinew_depend(libgloo-dev)
endif()
if(SINEW_WITH_UCX)
  sinew_depend(libucx-dev)
endif()
if(SINEW_WITH_MPI)
  sinew_depend(libopenmpi-dev)
endif()
# The last four: gRPC's files for CMake name them.
list(APPEND sinew_depends libssl-dev protobuf-compiler protobuf-compiler-grpc pkg-config libre2-dev)
if(BUILD_SHARED_LIBS)
  set(sinew_runtime_package "libsinew${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
  list(APPEND sinew_depends "${sinew_runtime_package} (= ${PROJECT_VERSION}-1)")
  sinew_package(sinew_runtime ${sinew_runtime_package} SECTION libs
      DESCRIPTION "${PROJECT_DESCRIPTION}
The shared libraries, for programs that were built with them.")
endif()
sinew_package(sinew_dev libsinew-dev SECTION libdevel DEPENDS ${sinew_depends} RECOMMENDS sinew-tools
    DESCRIPTION "${PROJECT_DESCRIPTION}
Workers of a job call functions and methods of each other, checked by the
compiler, and keep results where they were made.

Headers, libraries, the files by which CMake and pkg-config find them, and the
definition of the format on the wire.")
if(SINEW_RUN)
  sinew_package(sinew_tools sinew-tools SECTION utils
      DESCRIPTION "Starts the processes of a distributed job
sinew-run starts the processes of a job on this host, tells each its place by
the variables that torchrun uses, and ends all when one fails. For programs
with Sinew and for others.")
endif()

# Pure Python: where Debian's Python looks, and in packages only. pip installs it from its sources.
sinew_package(sinew_python python3-sinew-client ALL SECTION python
    DEPENDS "python3 (>= 3.9)" python3-grpcio python3-numpy python3-protobuf
    DESCRIPTION "Calls methods of Sinew workers from Python
numpy arrays in and out, over gRPC, from programs that are no members of the
job. No compiled code.")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/clients/python/sinew_client" DESTINATION /usr/lib/python3/dist-packages
        COMPONENT sinew_python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.py" PATTERN py.typed
        PATTERN __pycache__ EXCLUDE)
set(CPACK_DEBIAN_SINEW_PYTHON_PACKAGE_CONTROL_EXTRA
    "${PROJECT_SOURCE_DIR}/packaging/python/postinst" "${PROJECT_SOURCE_DIR}/packaging/python/prerm")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sinew)
# Each package has its own.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_PACKAGE_VENDOR "Sinew")
set(CPACK_PACKAGE_CONTACT "${SINEW_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
include(CPack)
