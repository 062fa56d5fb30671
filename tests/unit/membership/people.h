/* SPDX-License-Identifier: Apache-2.0 */
/* Peers for tests: different ones by number. */
#pragma once

#include "membership/view.h"

struct peer_info person(int number);      /* "node-7"; ids rise with the number */
struct view people(int size, int leader); /* persons 0..size-1, instance 77, epoch 5, term 3 */
