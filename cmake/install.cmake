# SPDX-License-Identifier: Apache-2.0
# What `make install` puts where, and the files by which others find the library.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hearth)

install(TARGETS hearth hearth_static EXPORT hearth)
install(FILES include/hearth.h TYPE INCLUDE)
install(EXPORT hearth NAMESPACE hearth:: FILE hearth-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/hearth-config.cmake.in ${PROJECT_BINARY_DIR}/hearth-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hearth-config-version.cmake
                                 COMPATIBILITY ${HEARTH_COMPATIBILITY})
install(FILES ${PROJECT_BINARY_DIR}/hearth-config.cmake ${PROJECT_BINARY_DIR}/hearth-config-version.cmake
        DESTINATION ${package_dir})

# The prefix is found from where the file stands, so an installed tree may be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE libdir)
string(REGEX REPLACE "[^/]+" ".." up ${libdir}/pkgconfig)
configure_file(cmake/hearth.pc.in hearth.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hearth.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(HEARTH_CLI)
  install(TARGETS hearth_cli)
endif()
if(TARGET hearth_mdns)
  install(TARGETS hearth_mdns DESTINATION ${HEARTH_HELPER_DIR})
endif()
install(FILES docs/man/hearth.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES LICENSE README.md CHANGELOG.md TYPE DOC)
