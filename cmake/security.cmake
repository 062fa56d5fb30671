# SPDX-License-Identifier: Apache-2.0
# What libhearth stands on: GnuTLS (TLS 1.3) and nettle (Ed25519, SHA3), and ngtcp2 for QUIC.
set(HEARTH_LIBRARIES Threads::Threads m)

# hearth_library(name header): adds a library, or says which package has it.
function(hearth_library name header)
  find_path(HEARTH_INCLUDE_${name} ${header})
  find_library(HEARTH_LIBRARY_${name} ${name})
  if(NOT HEARTH_INCLUDE_${name} OR NOT HEARTH_LIBRARY_${name})
    message(FATAL_ERROR "lib${name} with ${header} is missing: run ./setup")
  endif()
  if(CMAKE_CROSSCOMPILING) # not where the compiler looks by itself
    include_directories(SYSTEM ${HEARTH_INCLUDE_${name}})
    cmake_path(GET HEARTH_LIBRARY_${name} PARENT_PATH folder)
    link_directories(${folder})
    add_link_options(-Wl,-rpath-link,${folder})
  endif()
  set(HEARTH_LIBRARIES ${HEARTH_LIBRARIES} ${name} PARENT_SCOPE) # by name: an installed package has no paths
endfunction()

hearth_library(gnutls gnutls/gnutls.h)
hearth_library(hogweed nettle/eddsa.h)
hearth_library(nettle nettle/sha3.h)
if(HEARTH_QUIC)
  hearth_library(ngtcp2_crypto_gnutls ngtcp2/ngtcp2_crypto_gnutls.h)
  hearth_library(ngtcp2 ngtcp2/ngtcp2.h)
endif()

# For pkg-config: -lgnutls ...
set(HEARTH_PRIVATE_LIBS -pthread)
foreach(name ${HEARTH_LIBRARIES})
  if(NOT name MATCHES "::")
    string(APPEND HEARTH_PRIVATE_LIBS " -l${name}")
  endif()
endforeach()
