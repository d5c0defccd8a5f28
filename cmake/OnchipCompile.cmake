# Compiler settings every target of the project shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
# An installed program finds the library that was installed with it.
include(GNUInstallDirs)
set(CMAKE_INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(ONCHIP_CCACHE ccache)
if(ONCHIP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ONCHIP_CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow)
# A multiply-add is one rounding where the code says so and nowhere else: a − b is 0 where a and b are the same product.
add_compile_options(-ffp-contract=off)
if(ONCHIP_SANITIZE)
  add_compile_options(-fsanitize=${ONCHIP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ONCHIP_SANITIZE})
  # Instrumented kernels are slow to compile: AVX2 and the portable fallback alone. Plain builds test the other targets.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-DHWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3)>")
endif()
