# The preprocessor has the version from version.h, which is used as it is, also where nothing was configured.
file(STRINGS "${PROJECT_SOURCE_DIR}/version.h" sinew_version REGEX "^#define SINEW_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM sinew_version REPLACE "^.* ([0-9]+)$" "\\1")
list(JOIN sinew_version "." sinew_version)
if(NOT sinew_version STREQUAL PROJECT_VERSION)
  message(FATAL_ERROR "version.h says that this is Sinew ${sinew_version}, and CMakeLists.txt ${PROJECT_VERSION}.")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/version.h")
