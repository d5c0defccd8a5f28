# What `cmake --install` puts where: the library, its headers, and what find_package(onchip) and pkg-config read. The
# installed tree can be moved.
include(CMakePackageConfigHelpers)

set(ONCHIP_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/onchip)
install(TARGETS onchip EXPORT onchip-targets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/onchip DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT onchip-targets NAMESPACE onchip:: DESTINATION ${ONCHIP_CONFIG_DIR})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/onchip-config.cmake.in ${PROJECT_BINARY_DIR}/onchip-config.cmake
  INSTALL_DESTINATION ${ONCHIP_CONFIG_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onchip-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/onchip-config.cmake ${PROJECT_BINARY_DIR}/onchip-config-version.cmake
  DESTINATION ${ONCHIP_CONFIG_DIR})

file(RELATIVE_PATH ONCHIP_PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/onchip.pc.in ${PROJECT_BINARY_DIR}/onchip.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/onchip.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
