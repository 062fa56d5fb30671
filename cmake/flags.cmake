# SPDX-License-Identifier: Apache-2.0
# Compiler and linker flags, and the static library that shows nothing but hearth_*.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)

set(HEARTH_C_FLAGS -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    -ffp-contract=off) # results must not depend on whether a compiler finds a chance to fuse
set(HEARTH_LD_FLAGS "")

# Flags that cost nothing where they exist.
foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection)
  string(MAKE_C_IDENTIFIER "HEARTH_HAS${flag}" has)
  check_c_compiler_flag("-Werror ${flag}" ${has})
  if(${has})
    list(APPEND HEARTH_C_FLAGS ${flag})
  endif()
endforeach()
set(linker -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed)
if(NOT HEARTH_SANITIZE)
  list(APPEND linker -Wl,-z,defs) # a sanitizer's runtime is found only in the program
endif()
foreach(flag ${linker})
  string(MAKE_C_IDENTIFIER "HEARTH_HAS${flag}" has)
  check_linker_flag(C ${flag} ${has})
  if(${has})
    list(APPEND HEARTH_LD_FLAGS ${flag})
  endif()
endforeach()

if(HEARTH_WERROR)
  list(APPEND HEARTH_C_FLAGS -Werror)
endif()
if(HEARTH_SANITIZE)
  list(APPEND HEARTH_C_FLAGS -fsanitize=${HEARTH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  list(APPEND HEARTH_LD_FLAGS -fsanitize=${HEARTH_SANITIZE})
  if(HEARTH_SANITIZE MATCHES thread AND CMAKE_C_COMPILER_ID STREQUAL GNU)
    list(APPEND HEARTH_C_FLAGS -Wno-tsan) # gcc warns of every atomic fence, used rightly or not
  endif()
else()
  list(APPEND HEARTH_C_FLAGS $<$<CONFIG:Release,RelWithDebInfo>:-U_FORTIFY_SOURCE>
                             $<$<CONFIG:Release,RelWithDebInfo>:-D_FORTIFY_SOURCE=2>)
endif()
if(HEARTH_FUZZ)
  list(APPEND HEARTH_C_FLAGS -fsanitize=fuzzer-no-link)
endif()

# How every C file of the project is compiled.
function(hearth_flags target)
  set_target_properties(${target} PROPERTIES C_STANDARD 17 C_STANDARD_REQUIRED ON C_EXTENSIONS ON
                        C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE ${HEARTH_C_FLAGS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  if(HEARTH_POSIX)
    target_compile_definitions(${target} PRIVATE HEARTH_POSIX=1)
  endif()
endfunction()

function(hearth_link_flags target)
  target_link_options(${target} PRIVATE ${HEARTH_LD_FLAGS})
endfunction()

# What single files need. os/ goes without banned.h, since it sets feature macros before its first include, and
# quic_engine.c, since ngtcp2 has members with such names;
# tools/check.py reads it all the same.
function(hearth_source_flags)
  set(banned ${PROJECT_SOURCE_DIR}/src/core/banned.h)
  foreach(file ${ARGN})
    if(NOT file MATCHES "/src/os/|/transport/quic_engine[.]c$")
      set_property(SOURCE ${file} APPEND PROPERTY COMPILE_OPTIONS -include ${banned})
      set_property(SOURCE ${file} APPEND PROPERTY OBJECT_DEPENDS ${banned})
    endif()
    if(file MATCHES "/src/kernel/avx2.c$" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
      set_property(SOURCE ${file} APPEND PROPERTY COMPILE_OPTIONS -mavx2 -mf16c)
    endif()
  endforeach()
endfunction()

# A static library of an object library. Hidden names are made local first, so that our log_write or list_push
# cannot clash with the user's.
function(hearth_static_library target objects)
  if(APPLE OR NOT CMAKE_OBJCOPY)
    add_library(${target} STATIC $<TARGET_OBJECTS:${objects}>)
  else()
    set(whole ${PROJECT_BINARY_DIR}/hearth-whole.o)
    add_custom_command(
      OUTPUT ${whole}
      COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${whole} $<TARGET_OBJECTS:${objects}>
      COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${whole}
      DEPENDS ${objects} $<TARGET_OBJECTS:${objects}>
      COMMENT "Joining objects, hiding internal names"
      COMMAND_EXPAND_LISTS VERBATIM)
    add_library(${target} STATIC ${whole})
    set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endif()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
endfunction()
