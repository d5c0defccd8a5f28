# Installs the build in BUILD, then configures, builds and runs the consumer project against what was installed, in C++
# and in C, through find_package and through pkg-config. The installed tree is moved first: it must not know its place.
cmake_minimum_required(VERSION 3.25)
set(work ${BUILD}/consumer)
set(prefix ${work}/moved)

function(run)
  execute_process(COMMAND ${ARGV} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${work})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/staged --config ${CONFIG})
file(RENAME ${work}/staged ${prefix})
if(EXISTS ${prefix}/bin/onchip)
  run(${prefix}/bin/onchip --version)
endif()

foreach(language CXX C)
  run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${work}/${language} -G ${GENERATOR}
    -DUSE_LANGUAGE=${language} -DUSE_VERSION=${VERSION} -DEXAMPLES=${EXAMPLES} -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_${language}_COMPILER=${${language}_COMPILER} -DCMAKE_${language}_FLAGS=${FLAGS})
  run(${CMAKE_COMMAND} --build ${work}/${language})
  run(${CMAKE_CTEST_COMMAND} --test-dir ${work}/${language} --output-on-failure --no-tests=error)
endforeach()

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs onchip OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
separate_arguments(sanitize UNIX_COMMAND "${FLAGS}")
run(${C_COMPILER} -std=c11 ${sanitize} ${EXAMPLES}/merge.c -o ${work}/merge ${flags} -lm -Wl,-rpath,${prefix}/${LIBDIR})
run(${work}/merge)
