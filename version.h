#pragma once

/// The version of Sinew. docs/install.md says what may differ between two versions.

#define SINEW_VERSION_MAJOR 0
#define SINEW_VERSION_MINOR 1
#define SINEW_VERSION_PATCH 0

/// One number, which grows with the version: `#if SINEW_VERSION >= 1002003` holds
/// from 1.2.3 on.
#define SINEW_VERSION \
  (SINEW_VERSION_MAJOR * 1000000 + SINEW_VERSION_MINOR * 1000 + SINEW_VERSION_PATCH)

/// "1.2.3".
#define SINEW_VERSION_STRING               \
  SINEW_VERSION_TEXT_(SINEW_VERSION_MAJOR) \
  "." SINEW_VERSION_TEXT_(SINEW_VERSION_MINOR) "." SINEW_VERSION_TEXT_(SINEW_VERSION_PATCH)
#define SINEW_VERSION_TEXT_(number) SINEW_VERSION_QUOTED_(number)
#define SINEW_VERSION_QUOTED_(number) #number
