# SPDX-License-Identifier: Apache-2.0
"""Ports for programs that are told where to listen. Run as a program, this prints one."""

import random
import socket

FIRST, LAST = 10000, 32000
_at = random.randrange(FIRST, LAST)


def _is_free(port):
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
        return True
    except OSError:
        return False


def free_port(count=1):
    """A port of 127.0.0.1 that nobody had a moment ago, nor those after it; never the same twice. It is below those
    that systems hand out by themselves (Linux: from 32768 on), so no other connection gets it by chance meanwhile."""
    global _at
    for _ in range(LAST - FIRST):
        if _at + count > LAST:
            _at = FIRST
        port, _at = _at, _at + count
        if all(_is_free(port + i) for i in range(count)):
            return port
    raise RuntimeError("there is no free port")


if __name__ == "__main__":
    print(free_port())
