/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in on a link, brought to the operation it belongs to. */
#pragma once

#include "transport/link.h"

extern const struct link_events dispatch_events; /* their arg is a struct peer */
