include(GNUInstallDirs)

# sinew_set_install_rpath(<target> <folder>): where the installed target, in <folder>, looks for Sinew's own libraries and
# for those that it was linked with. None where the system looks anyway.
function(sinew_set_install_rpath target folder)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  set(libraries "${CMAKE_INSTALL_FULL_LIBDIR}")
  if(NOT libraries IN_LIST CMAKE_PLATFORM_IMPLICIT_LINK_DIRECTORIES AND
     NOT libraries IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    file(RELATIVE_PATH way "${CMAKE_INSTALL_PREFIX}/${folder}" "${libraries}")
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${way}")
  endif()
endfunction()

# sinew_library(<name> [APART] [SOURCES ...] [LINK ...] [LINK_PRIVATE ...] [PRECOMPILE header...])
#
# A library of Sinew, known as Sinew::<name without sinew_>, that is installed with the others. Without sources it is an
# interface library. LINK: what its public headers need too. APART: Sinew::sinew does not have it. PRECOMPILE: headers
# that most of its sources include; sources that are compiled in batches share them anyway.
function(sinew_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "APART" "" "SOURCES;LINK;LINK_PRIVATE;PRECOMPILE")
  string(REGEX REPLACE "^sinew_" "" arg_EXPORT_NAME ${name})
  if(arg_SOURCES)
    add_library(${name} ${arg_SOURCES})
    target_link_libraries(${name} PUBLIC ${arg_LINK} PRIVATE ${arg_LINK_PRIVATE})
    # Nothing says what is exported (all is), so shared and static libraries share what a compiler cache has.
    set_target_properties(${name} PROPERTIES DEFINE_SYMBOL ""
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    if(arg_PRECOMPILE AND NOT CMAKE_UNITY_BUILD)
      target_precompile_headers(${name} PRIVATE ${arg_PRECOMPILE})
    endif()
    if(BUILD_SHARED_LIBS)
      sinew_set_install_rpath(${name} "${CMAKE_INSTALL_LIBDIR}")
    endif()
    set(scope PUBLIC)
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${arg_LINK} ${arg_LINK_PRIVATE})
    set(scope INTERFACE)
  endif()
  target_compile_features(${name} ${scope} cxx_std_17)
  target_include_directories(${name} ${scope}
      $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${arg_EXPORT_NAME})
  add_library(Sinew::${arg_EXPORT_NAME} ALIAS ${name})
  if(arg_APART)
    set_property(GLOBAL APPEND PROPERTY SINEW_LIBRARIES_APART ${name})
  else()
    set_property(GLOBAL APPEND PROPERTY SINEW_LIBRARIES ${name})
  endif()
endfunction()

# sinew_sources(<variable> <folder> ...): the .cc files of these folders, without their subfolders.
function(sinew_sources variable)
  set(sources)
  foreach(folder IN LISTS ARGN)
    file(GLOB found CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc")
    list(APPEND sources ${found})
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# sinew_planted_sources(<folder of tests/> <regex> <source>...): a test of that folder links its own objects of these, with bugs
# planted in them, in the place of the library's: each must be an object of its own there.
function(sinew_planted_sources folder regex)
  # A build that takes the objects of another one (tests/install) has the same.
  set(proved ${SINEW_PROVE} $ENV{SINEW_OBJECTS_PROVE})
  if((BUILD_TESTING AND NOT DEFINED SINEW_PROVE) OR folder IN_LIST proved)
    set(sources ${ARGN})
    list(FILTER sources INCLUDE REGEX "${regex}")
    set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# sinew_install_headers(<folder>): the folder's own headers are public.
function(sinew_install_headers folder)
  file(GLOB headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.h")
  set_property(GLOBAL APPEND PROPERTY SINEW_PUBLIC_HEADERS ${headers})
endfunction()

# sinew_add_layer(<folder>): a layer above rpc, once it has something in it. Its CMakeLists.txt defines sinew_<folder>.
macro(sinew_add_layer folder)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt")
    add_subdirectory(${folder})
    list(APPEND SINEW_LAYERS sinew_${folder})
  endif()
endmacro()
