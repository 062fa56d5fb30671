# SPDX-License-Identifier: Apache-2.0
# The backend "hearth" of torch.distributed: a Python module in C++, built against the torch of one Python.
enable_language(CXX)

set(HEARTH_TORCH_PYTHON "" CACHE FILEPATH "The Python that has torch; empty: the first found that has")

# What that Python knows: compiler and linker paths, versions.
set(asks [[
import sysconfig, torch
from torch.utils import cpp_extension
print(torch.__version__, int(torch._C._GLIBCXX_USE_CXX11_ABI), sysconfig.get_config_var('EXT_SUFFIX'), sep='|')
print(*cpp_extension.include_paths(), sysconfig.get_paths()['include'], sep=';')
print(*cpp_extension.library_paths(), sep=';')
]])
foreach(python ${HEARTH_TORCH_PYTHON} python3 /usr/bin/python3)
  execute_process(COMMAND ${python} -c "${asks}" OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(found ${python})
    break()
  endif()
endforeach()
if(failed)
  message(FATAL_ERROR "HEARTH_TORCH is ON, but no Python with torch was found: install python3-torch and python3-dev, "
                      "or set HEARTH_TORCH_PYTHON")
endif()
string(REGEX REPLACE "\n$" "" answer "${answer}")
string(REGEX MATCH "([^\n]*)\n([^\n]*)\n([^\n]*)" answer "${answer}")
set(includes "${CMAKE_MATCH_2}")
set(libraries "${CMAKE_MATCH_3}")
string(REPLACE "|" ";" facts "${CMAKE_MATCH_1}")
list(GET facts 0 torch_version)
list(GET facts 1 abi)
list(GET facts 2 suffix)
if(NOT torch_version MATCHES "^1\\.13\\.")
  message(FATAL_ERROR "HEARTH_TORCH: ${found} has torch ${torch_version}; the backend is made for 1.13")
endif()
message(STATUS "Backend for torch ${torch_version} of ${found}")

foreach(name torch_python torch_cpu c10)
  find_library(HEARTH_LIB_${name} ${name} PATHS ${libraries} NO_DEFAULT_PATH REQUIRED)
  list(APPEND torch_libraries ${HEARTH_LIB_${name}})
endforeach()

file(GLOB backend_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bindings/torch/*.cc)
add_library(hearth_backend MODULE ${backend_sources})
# Torch's headers cost a compiler far more than our files: a few of those are compiled as one.
set_target_properties(hearth_backend PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4
  PREFIX "" SUFFIX "${suffix}" CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_VISIBILITY_PRESET hidden
  BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN" POSITION_INDEPENDENT_CODE ON)
target_include_directories(hearth_backend PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_include_directories(hearth_backend SYSTEM PRIVATE ${includes})
target_compile_definitions(hearth_backend PRIVATE USE_DISTRIBUTED USE_C10D _GLIBCXX_USE_CXX11_ABI=${abi}
                           HEARTH_TORCH_VERSION="${torch_version}")
target_compile_options(hearth_backend PRIVATE -Wall -Wextra)
if(HEARTH_WERROR)
  target_compile_options(hearth_backend PRIVATE -Werror)
endif()
if(HEARTH_SANITIZE)
  target_compile_options(hearth_backend PRIVATE -fsanitize=${HEARTH_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(hearth_backend PRIVATE -fsanitize=${HEARTH_SANITIZE})
endif()
target_link_libraries(hearth_backend PRIVATE hearth ${torch_libraries})
