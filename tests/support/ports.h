/* SPDX-License-Identifier: Apache-2.0 */
/* Ports for programs that are told where to listen. */
#pragma once

#include <stdint.h>

/* A port of 127.0.0.1 that nobody had a moment ago, nor the one after it; never the same twice. 0: there is
 * none. It is below those that systems hand out by themselves (Linux: from 32768 on), so no other connection
 * of this machine gets it by chance before the program that it is meant for. */
uint16_t free_port(void);
