/* SPDX-License-Identifier: Apache-2.0 */
/* Looks through the frames of a QUIC packet, decrypted, before the library takes them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether one of them asks that ids be given up by which we call the peer, which members never do: a
 * connection keeps its path. ngtcp2 (0.12) ends the process when it is asked twice. Frames behind one that is
 * malformed or unknown do not count: nobody reads them. */
bool quic_frames_retire(const uint8_t *frames, size_t len);
