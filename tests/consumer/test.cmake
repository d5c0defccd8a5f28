# The consumer project is configured, built and run by a test; it is no part of this build.
if(ONCHIP_SANITIZE)
  set(sanitize_flag -fsanitize=${ONCHIP_SANITIZE})
endif()
add_test(NAME consumer
  COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DCONFIG=$<CONFIG> -DGENERATOR=${CMAKE_GENERATOR}
    -DEXAMPLES=${PROJECT_SOURCE_DIR}/examples -DVERSION=${PROJECT_VERSION} -DLIBDIR=${CMAKE_INSTALL_LIBDIR}
    -DCXX_COMPILER=${CMAKE_CXX_COMPILER} -DC_COMPILER=${CMAKE_C_COMPILER} -DFLAGS=${sanitize_flag}
    -DPKG_CONFIG=${PKG_CONFIG_EXECUTABLE} -P ${CMAKE_CURRENT_LIST_DIR}/run.cmake)
set_tests_properties(consumer PROPERTIES LABELS unit TIMEOUT 300)
