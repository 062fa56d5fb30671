# SPDX-License-Identifier: Apache-2.0
# Finds tests and fuzzers by name; `tests` builds them, ctest runs them, labelled by their directory.
find_package(Python3 COMPONENTS Interpreter)
find_path(CMOCKA_INCLUDE cmocka.h)
find_library(CMOCKA_LIBRARY cmocka)

# Everything inside, with assert: release kinds of build compile it once more for that.
if(CMAKE_BUILD_TYPE MATCHES "Rel")
  add_library(hearth_checked STATIC EXCLUDE_FROM_ALL ${sources})
  hearth_flags(hearth_checked)
  target_compile_options(hearth_checked PRIVATE -UNDEBUG)
else()
  add_library(hearth_checked STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:hearth_objects>)
  set_target_properties(hearth_checked PROPERTIES LINKER_LANGUAGE C)
endif()
target_link_libraries(hearth_checked PUBLIC ${HEARTH_LIBRARIES})

add_custom_target(tests)
add_subdirectory(${PROJECT_SOURCE_DIR}/tests/net)

# Seconds that a test of each label may take.
set(HEARTH_TIMEOUT_unit 120)
set(HEARTH_TIMEOUT_conform 180)
set(HEARTH_TIMEOUT_sim 180)
set(HEARTH_TIMEOUT_torture 240)
set(HEARTH_TIMEOUT_process 240)
set(HEARTH_TIMEOUT_net 600)
set(HEARTH_TIMEOUT_cli 120)
set(HEARTH_TIMEOUT_house 300)
set(HEARTH_TIMEOUT_python 180)
set(HEARTH_TIMEOUT_torch 300)
set(HEARTH_TIMEOUT_fuzz 60)

file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/run)
file(CHMOD ${PROJECT_BINARY_DIR}/run PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

# Options of the sanitizers reach programs that were not built with them too, and mean nothing there.
set(HEARTH_TEST_ENVIRONMENT
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1" "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0"
    "XDG_CONFIG_HOME=${PROJECT_BINARY_DIR}/test-config" # not the keys of whoever runs the tests
    "XDG_RUNTIME_DIR=${PROJECT_BINARY_DIR}/run" # nor the sockets, unless this path is too long for them
    "HEARTH_SOURCE_DIR=${PROJECT_SOURCE_DIR}" "HEARTH_BINARY_DIR=${PROJECT_BINARY_DIR}" "CC=${CMAKE_C_COMPILER}")

# hearth_test(name label command...): a test that runs in the source directory; exit status 77 means skipped.
function(hearth_test name label)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  math(EXPR timeout "${HEARTH_TIMEOUT_${label}} * ${HEARTH_TEST_FACTOR}")
  if(HEARTH_FUZZ)
    math(EXPR timeout "${timeout} + ${HEARTH_FUZZ_SECONDS}")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${HEARTH_TEST_ENVIRONMENT}")
endfunction()

# How tests and fuzzers are compiled: with assert, all internals and cmocka in reach.
function(hearth_test_flags target)
  hearth_flags(${target})
  target_compile_options(${target} PRIVATE -UNDEBUG -Wno-unused-parameter) # tests are full of callbacks
  target_compile_definitions(${target} PRIVATE $<$<BOOL:${HEARTH_QUIC}>:HEARTH_QUIC>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  if(CMOCKA_INCLUDE)
    target_include_directories(${target} SYSTEM PRIVATE ${CMOCKA_INCLUDE})
  endif()
endfunction()

# A program for tests and fuzzers; its path below the build directory mirrors the source.
function(hearth_test_program target file)
  add_executable(${target} EXCLUDE_FROM_ALL ${file} ${ARGN})
  cmake_path(GET file PARENT_PATH dir)
  cmake_path(RELATIVE_PATH dir BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  cmake_path(GET file STEM stem)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${dir} OUTPUT_NAME ${stem})
  hearth_test_flags(${target})
  hearth_link_flags(${target})
  target_link_libraries(${target} PRIVATE hearth_checked)
  add_dependencies(tests ${target})
endfunction()

# hearth_test_help(out dir): the C files of dir that are no tests, as a library for its tests; "" if there are none.
function(hearth_test_help out dir)
  cmake_path(RELATIVE_PATH dir BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
  string(MAKE_C_IDENTIFIER "${path}_help" target)
  file(GLOB files CONFIGURE_DEPENDS ${dir}/*.c)
  list(FILTER files EXCLUDE REGEX "/test_[^/]*[.]c$")
  if(files AND NOT TARGET ${target})
    add_library(${target} STATIC EXCLUDE_FROM_ALL ${files})
    hearth_test_flags(${target})
    target_link_libraries(${target} PUBLIC hearth_checked)
  endif()
  if(NOT files)
    set(target "")
  endif()
  set(${out} ${target} PARENT_SCOPE)
endfunction()

# ---- cmocka: tests/LABEL/test_NAME.c or tests/LABEL/ROOM/test_NAME.c. Other C files beside a test are linked with
# it, and so is tests/support/*.c. -----------------------------------------------------------------------------------

file(GLOB test_files CONFIGURE_DEPENDS tests/unit/*/test_*.c tests/conform/test_*.c tests/sim/test_*.c
     tests/torture/test_*.c tests/process/test_*.c)
if(HEARTH_FUZZ)
  set(test_files "")
elseif(NOT CMOCKA_INCLUDE OR NOT CMOCKA_LIBRARY)
  message(WARNING "cmocka is missing, so there are no unit tests: run ./setup")
  set(test_files "")
endif()
foreach(file ${test_files})
  cmake_path(GET file PARENT_PATH dir)
  cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/tests OUTPUT_VARIABLE path)
  string(REGEX REPLACE "test_([^/]*)[.]c$" "\\1" name ${path})
  string(REGEX MATCH "^[^/]+" label ${path})
  string(MAKE_C_IDENTIFIER "test_${name}" target)
  set(commands FALSE) # linked with the command's files
  if(path MATCHES "^unit/cli/|^conform/test_convergence[.]c$")
    set(commands TRUE)
  endif()
  if(commands AND NOT HEARTH_CLI)
    continue()
  endif()
  hearth_test_program(${target} ${file})
  hearth_test_help(beside ${dir})
  hearth_test_help(support ${PROJECT_SOURCE_DIR}/tests/support)
  if(path MATCHES "^torture/") # on virtual time, where waiting costs nothing
    hearth_test_help(sim ${PROJECT_SOURCE_DIR}/tests/sim)
    list(APPEND beside ${sim})
  endif()
  if(path MATCHES "^process/") # the reference is the same between processes
    hearth_test_help(conform ${PROJECT_SOURCE_DIR}/tests/conform)
    list(APPEND beside ${conform})
  endif()
  target_link_libraries(${target} PRIVATE ${beside} ${support} ${CMOCKA_LIBRARY})
  if(commands)
    target_link_libraries(${target} PRIVATE hearth_commands)
  endif()
  if(path MATCHES "^unit/security/") # signatures are counted: strangers must not cause any
    target_link_options(${target} PRIVATE -Wl,--wrap=node_key_sign)
  endif()
  hearth_test(${name} ${label} ${target})
endforeach()

# ---- Fuzzers: fuzz/fuzz_NAME.c with fuzz/corpus/NAME/; fuzz_cli_NAME.c is linked with the command's files. With
# libFuzzer they run for a while, else they replay the corpus. ----------------------------------------------------------------------------------------------------------

file(GLOB fuzz_files CONFIGURE_DEPENDS fuzz/fuzz_*.c)
foreach(file ${fuzz_files})
  string(REGEX REPLACE ".*/fuzz_([^/]*)[.]c$" "\\1" name ${file})
  set(corpus ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
  if(name MATCHES "^cli_" AND NOT HEARTH_CLI)
    continue()
  endif()
  if(HEARTH_FUZZ)
    hearth_test_program(fuzz_${name} ${file})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    set(found ${PROJECT_BINARY_DIR}/corpus/${name}) # new inputs go here, never into the source tree
    file(MAKE_DIRECTORY ${found})
    hearth_test(fuzz/${name} fuzz fuzz_${name} -max_total_time=${HEARTH_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048
                -print_final_stats=1 -verbosity=0 -artifact_prefix=${PROJECT_BINARY_DIR}/crash-${name}- ${found} ${corpus})
  else()
    hearth_test_program(fuzz_${name} ${file} ${PROJECT_SOURCE_DIR}/fuzz/replay.c)
    hearth_test(fuzz/${name} fuzz fuzz_${name} ${corpus})
  endif()
  if(name MATCHES "^cli_")
    target_link_libraries(fuzz_${name} PRIVATE hearth_commands)
  endif()
endforeach()

# ---- Scripts, Python or shell: tests/cli/ drives the command, tests/house/ looks at what was built, tests/net/ makes
# hosts of network namespaces, tests/python/ and tests/torch/ use the binding. --------------------------------------

# hearth_script_tests(label [python]): the scripts of tests/label, by another Python if it is named.
function(hearth_script_tests label)
  set(python ${ARGN})
  if(NOT python)
    set(python ${Python3_EXECUTABLE})
  endif()
  file(GLOB scripts CONFIGURE_DEPENDS tests/${label}/test_*.py tests/${label}/test_*.sh)
  foreach(file ${scripts})
    string(REGEX REPLACE ".*/test_([^/]*)[.](py|sh)$" "\\1" name ${file})
    if(file MATCHES "[.]py$")
      hearth_test(${label}/${name} ${label} ${python} -B tests/support/run_tests.py ${file})
    else()
      hearth_test(${label}/${name} ${label} bash ${file})
    endif()
  endforeach()
endfunction()

# The binding's tests: by a Python that has torch and numpy, where there is one; without them tests say what they skip.
function(hearth_binding_tests)
  execute_process(COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tools/pick_python.py torch numpy
                  OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND HEARTH_TEST_ENVIRONMENT "PYTHONPATH=${PROJECT_SOURCE_DIR}/bindings/python"
       "HEARTH_LIBRARY=$<TARGET_SONAME_FILE:hearth>" "PYTHONDONTWRITEBYTECODE=1")
  hearth_script_tests(python ${python})
  hearth_script_tests(torch ${python})
  get_property(tests DIRECTORY PROPERTY TESTS)
  list(FILTER tests INCLUDE REGEX "^torch/")
  if(tests)
    set_tests_properties(${tests} PROPERTIES PROCESSORS 2) # each starts several processes that compute
  endif()
  set_tests_properties(python/wheel PROPERTIES COST 40) # the longest: nothing would run beside it at the end
endfunction()

if(Python3_FOUND AND HEARTH_CLI AND NOT HEARTH_FUZZ)
  hearth_script_tests(cli)
  if(TARGET bench_kernels)
    add_dependencies(tests bench_kernels)
  endif()
endif()
if(Python3_FOUND AND HEARTH_CLI AND HEARTH_HOUSE AND HEARTH_INSTALL AND NOT HEARTH_SANITIZE)
  hearth_script_tests(house)
  hearth_script_tests(net)
  set_tests_properties(net/probes net/cluster net/cluster_busy net/cluster_faults PROPERTIES RUN_SERIAL ON) # they measure
  hearth_script_tests(process)
  if(TARGET hearth_switch)
    add_dependencies(tests hearth_switch)
  endif()
  hearth_binding_tests()
  hearth_test(house/rules house ${Python3_EXECUTABLE} -B tools/check.py)
  hearth_test(house/format house ${Python3_EXECUTABLE} -B tools/check.py --format)
  hearth_test(house/tidy house ${Python3_EXECUTABLE} -B tools/check.py --tidy)
  set_tests_properties(house/tidy PROPERTIES PROCESSORS 2)
endif()
