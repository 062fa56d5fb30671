/* SPDX-License-Identifier: Apache-2.0 */
/* Makes calls that we never want compile errors. The build puts it first in every file of src/ but os/. */
#pragma once

/* What declares them comes first, since it may still speak their names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Some are macros as well, here or there. */
#undef alloca
#undef sprintf
#undef strcat
#undef strcpy
#undef vsprintf

/* Unbounded writes. */
#pragma GCC poison strcpy strcat sprintf vsprintf gets alloca

/* Hidden state, or a result that cannot be told from an error. */
#pragma GCC poison strtok atoi atol atoll atof rand srand

#pragma GCC poison system
