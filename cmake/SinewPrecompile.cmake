# For users of Sinew; installed.

# sinew_precompile(<target> ... [HEADERS <header> ...])
#
# Compiles the headers that most sources with Sinew include (<sinew/sinew.h>, <ATen/ATen.h>) once, for all of these targets and
# those of earlier and later calls that are compiled alike: by the same standard, and as position independent code or not. HEADERS
# are compiled with them. Targets that differ in other flags need a call with other HEADERS, or none.
function(sinew_precompile)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "HEADERS")
  foreach(target IN LISTS arg_UNPARSED_ARGUMENTS)
    if(NOT TARGET ${target})
      message(FATAL_ERROR "sinew_precompile: there is no target ${target}")
    endif()
    set(traits)
    # What the headers must have in common with a target that they are compiled for.
    foreach(property CXX_STANDARD CXX_EXTENSIONS POSITION_INDEPENDENT_CODE CXX_VISIBILITY_PRESET)
      get_target_property(value ${target} ${property})
      get_target_property(type ${target} TYPE)
      if(property STREQUAL "POSITION_INDEPENDENT_CODE" AND type MATCHES "^(SHARED|MODULE)_LIBRARY$")
        set(value ON)
      endif()
      if(NOT value MATCHES "NOTFOUND$")
        list(APPEND traits ${property} "${value}")
      endif()
    endforeach()
    string(SHA1 owner "${traits};${arg_HEADERS}")
    string(SUBSTRING "${owner}" 0 8 owner)
    set(owner "sinew_precompiled_${owner}")
    if(NOT TARGET ${owner})
      sinew_add_precompiled(${owner} "${traits}" "${arg_HEADERS}")
    endif()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endforeach()
endfunction()

# sinew_add_precompiled(<name> <traits> <headers>): the target that compiles them.
function(sinew_add_precompiled name traits headers)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// Only there to compile the headers.\n" @ONLY)
  add_library(${name} OBJECT "${source}")
  if(traits)
    set_target_properties(${name} PROPERTIES ${traits})
  endif()
  target_link_libraries(${name} PRIVATE Sinew::sinew)
  target_precompile_headers(${name} PRIVATE <ATen/ATen.h> <sinew/sinew.h> ${headers})
endfunction()
