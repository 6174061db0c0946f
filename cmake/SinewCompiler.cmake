# What applies to everything that is built here.

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo, MinSizeRel" FORCE)
endif()

# Precompiled headers are only cached when ccache is told not to mind them.
find_program(SINEW_CCACHE ccache)
if(SINEW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(sinew_ccache_settings CCACHE_SLOPPINESS=pch_defines,time_macros)
  # Presets share what they compile alike. A user who has said what paths are relative to knows better.
  execute_process(COMMAND "${SINEW_CCACHE}" --get-config base_dir
                  OUTPUT_VARIABLE sinew_ccache_base_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT sinew_ccache_base_dir)
    list(APPEND sinew_ccache_settings "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;${sinew_ccache_settings};${SINEW_CCACHE}")
endif()

# Makes <sinew/...> the root of the source tree, as it is where Sinew is installed.
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include")
file(CREATE_LINK "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/include/sinew" SYMBOLIC)
include_directories("${PROJECT_BINARY_DIR}/include")

add_compile_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options(-Wthread-safety)
endif()
if(SINEW_WARNINGS_AS_ERRORS)
  add_compile_options(-Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # With -O3 GCC 14 sees an overflow in std::vector<bool>, where LibTorch's headers reserve one.
    add_compile_options(-Wno-error=array-bounds)
  endif()
endif()

# For the hundred programs of the tests: the usual linker takes several times as long.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_BUILD_TYPE STREQUAL Debug)
  find_program(SINEW_FAST_LINKER NAMES ld.lld ld.gold)
  if(SINEW_FAST_LINKER)
    get_filename_component(sinew_linker "${SINEW_FAST_LINKER}" LAST_EXT)
    string(SUBSTRING "${sinew_linker}" 1 -1 sinew_linker)
    add_link_options(-fuse-ld=${sinew_linker})
  endif()
endif()

if(SINEW_SANITIZE)
  add_compile_options(-fsanitize=${SINEW_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SINEW_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # With checks in between GCC takes what LibTorch's headers return by value for uninitialised.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  if(SINEW_SANITIZE MATCHES thread)
    # Keeps the names in reports that tests/tsan.supp goes by.
    add_compile_options(-fno-inline)
  endif()
endif()

if(SINEW_CLANG_TIDY)
  find_program(SINEW_CLANG_TIDY_PROGRAM NAMES clang-tidy clang-tidy-14 REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY "${SINEW_CLANG_TIDY_PROGRAM};--quiet")
endif()

# For examples and tests of the upper layers where they only have to be right: they compile in three quarters of the time. A
# sanitizer slows them down enough.
set(SINEW_UNOPTIMIZED)
if(CMAKE_BUILD_TYPE STREQUAL Debug AND NOT SINEW_SANITIZE)
  set(SINEW_UNOPTIMIZED -O0)
endif()
