/* SPDX-License-Identifier: Apache-2.0 */
/* A program that reads datagrams from any sender gives up the rights that it does not need, for good: an
 * attacker who takes it over has only its open descriptors and datagrams. For hearth-mdns. */
#pragma once

#include "core/error.h"

/* Each of these: HEARTH_OK, or HEARTH_UNSUPPORTED with a text that says what the system refused; then nothing
 * has changed. */

/* Nothing that is executed gains rights. The other two need it. */
int MUST_CHECK sandbox_privileges(struct error *error);
/* No path leads to a file any more, to read, write or execute it; no TCP; no signal to others, and no
 * abstract socket of theirs, where the kernel knows of these (Landlock). */
int MUST_CHECK sandbox_files(struct error *error);
/* Only system calls that a single thread needs to move datagrams, memory and time: no exec, no fork, no open,
 * no stream, no code that is made at run time. What is not allowed fails with EPERM (seccomp). */
int MUST_CHECK sandbox_calls(struct error *error);

/* All of them. As much is given up as can be; HEARTH_UNSUPPORTED: not all, the text says what is missing. */
int MUST_CHECK sandbox_enter(struct error *error);
