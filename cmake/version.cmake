# SPDX-License-Identifier: Apache-2.0
# Reads the version from include/hearth.h, its only source: sets HEARTH_VERSION and HEARTH_SOVERSION.
set(header ${CMAKE_CURRENT_LIST_DIR}/../include/hearth.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
file(READ ${header} text)
foreach(part MAJOR MINOR PATCH)
  if(NOT text MATCHES "#define HEARTH_VERSION_${part} +([0-9]+)")
    message(FATAL_ERROR "include/hearth.h does not define HEARTH_VERSION_${part}")
  endif()
  set(${part} ${CMAKE_MATCH_1})
endforeach()
set(HEARTH_VERSION ${MAJOR}.${MINOR}.${PATCH})

# Before 1.0 every minor version has its own soname; from then on only the major one counts.
if(MAJOR EQUAL 0)
  set(HEARTH_SOVERSION ${MAJOR}.${MINOR})
  set(HEARTH_COMPATIBILITY SameMinorVersion)
else()
  set(HEARTH_SOVERSION ${MAJOR})
  set(HEARTH_COMPATIBILITY SameMajorVersion)
endif()
