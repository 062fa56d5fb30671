# SPDX-License-Identifier: Apache-2.0
# hearth-mdns, the helper that speaks mDNS with avahi-core: a program of its own, so the library needs no avahi.
set(HEARTH_HELPER_DIR ${CMAKE_INSTALL_LIBEXECDIR}/hearth)

if(HEARTH_MDNS)
  find_path(HEARTH_INCLUDE_avahi avahi-core/core.h)
  find_library(HEARTH_LIBRARY_avahi_core avahi-core)
  find_library(HEARTH_LIBRARY_avahi_common avahi-common)
  if(HEARTH_INCLUDE_avahi AND HEARTH_LIBRARY_avahi_core AND HEARTH_LIBRARY_avahi_common)
    set(HEARTH_AVAHI_FOUND TRUE)
  else()
    message(STATUS "avahi-core is missing (Debian: libavahi-core-dev): hearth-mdns is left out, nodes are found by seeds only")
  endif()
endif()

add_custom_target(hearth_helpers) # builds them, if there are any

# hearth_helper_paths(file): tells it where the helper will be: absolute, and from programs and libraries of a tree that
# was moved.
function(hearth_helper_paths file)
  cmake_path(SET helper NORMALIZE ${CMAKE_INSTALL_FULL_LIBEXECDIR}/hearth/hearth-mdns)
  cmake_path(RELATIVE_PATH helper BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR} OUTPUT_VARIABLE from_bin)
  cmake_path(RELATIVE_PATH helper BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR} OUTPUT_VARIABLE from_lib)
  set_property(SOURCE ${file} APPEND PROPERTY COMPILE_DEFINITIONS HEARTH_HELPER_PATH="${helper}"
               HEARTH_HELPER_FROM_BIN="${from_bin}" HEARTH_HELPER_FROM_LIB="${from_lib}")
endfunction()

# The program. Of the library it takes the two rooms that need nothing else, lines and packets.
function(hearth_helper_program)
  file(GLOB helper_sources CONFIGURE_DEPENDS helper/*.c)
  file(GLOB shared_sources CONFIGURE_DEPENDS src/core/*.c src/os/*.c src/discovery/mdns_*.c)
  add_library(hearth_mdns_parts STATIC ${shared_sources}) # the linker takes what is used
  hearth_flags(hearth_mdns_parts)
  add_executable(hearth_mdns ${helper_sources})
  set_target_properties(hearth_mdns PROPERTIES OUTPUT_NAME hearth-mdns)
  hearth_flags(hearth_mdns)
  hearth_link_flags(hearth_mdns)
  target_compile_definitions(hearth_mdns PRIVATE _GNU_SOURCE)
  target_include_directories(hearth_mdns PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(hearth_mdns SYSTEM PRIVATE ${HEARTH_INCLUDE_avahi})
  target_link_libraries(hearth_mdns PRIVATE hearth_mdns_parts ${HEARTH_LIBRARY_avahi_core}
                        ${HEARTH_LIBRARY_avahi_common} Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(hearth_helpers hearth_mdns)
endfunction()
