#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/cli_messages and cli_launch, from cli/run/launch_message.h and not from the C code.
import pathlib

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def frame(kind, content=b"", length=None):
    length = len(content) if length is None else length
    return kind.encode() + length.to_bytes(3, "little") + content


TOKEN = b"hearth1-test-" + b"0" * 58
SEEDS = {
    "empty": b"",
    "start": frame("d", b"/") + frame("v", b"HEARTH_RANK=0") + frame("a", b"true") + frame("k", TOKEN)
    + frame("g", b"\1"),
    "secret": frame("k", TOKEN),
    "secret_twice": frame("k", TOKEN) * 2,
    "secret_empty": frame("k"),
    "secret_long": frame("k", b"x" * 5000),
    "answers": frame("h", b"hearth host agent 2") + frame("p", b"\1\2\3\4") + frame("o", b"out\n") + frame("q", b"\0\0"),
    "signals": b"".join(frame("s", bytes([place])) for place in range(9)),
    "input": frame("i", b"y\n" * 8192) + frame("e"),
    "cut": frame("v", b"A=B", length=100),
    "longest": frame("o", b"", length=1 << 20),
    "too_long": frame("o", b"", length=(1 << 20) + 1),
    "shell": b"Welcome to this machine\n",
}
HELLO = frame("h", b"hearth host agent 2")
LAUNCH = {
    **SEEDS,
    "empty_of_each_kind": b"".join(frame(kind) for kind in "dvakgsiehportfqz"),
    "failed": HELLO + frame("f", b"\x7fcannot run 'x': No such file"),
    "failed_bare": HELLO + frame("f", b"\x7e"),
    "failed_empty": HELLO + frame("f"),
    "failed_well": HELLO + frame("f", b"\0all is well"),
    "failed_escapes": HELLO + frame("f", b"\1\x1b[2J\x9b\xff\n\0"),
    "pids": b"".join(frame("p", pid.to_bytes(4, "little")) for pid in (0, 1, 2, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1)),
    "numbers": b"".join(frame(kind, bytes([n])) for kind in "gst" for n in (0, 1, 2, 7, 8, 255)),
    "ends": frame("q", b"\0\0") + frame("q", b"\1\x7f") + frame("q", b"\0\x80") + frame("q", b"\0\0\0"),
    "zeros_inside": frame("v", b"A=\0B") + frame("a", b"a\0b") + frame("d", b"/\0"),
    "other_greeting": frame("h", b"hearth host agent 9"),
}

if __name__ == "__main__":
    for folder, seeds in (("cli_messages", SEEDS), ("cli_launch", LAUNCH)):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (CORPUS / folder / name).write_bytes(content)
