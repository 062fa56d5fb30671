#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/cli_letters and cli_launch, from cli/post.h and not from the C code.
import pathlib

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def letter(kind, content=b"", length=None):
    length = len(content) if length is None else length
    return kind.encode() + length.to_bytes(3, "little") + content


TOKEN = b"hearth1-test-" + b"0" * 58
SEEDS = {
    "empty": b"",
    "start": letter("d", b"/") + letter("v", b"HEARTH_RANK=0") + letter("a", b"true") + letter("k", TOKEN)
    + letter("g", b"\1"),
    "secret": letter("k", TOKEN),
    "secret_twice": letter("k", TOKEN) * 2,
    "secret_empty": letter("k"),
    "secret_long": letter("k", b"x" * 5000),
    "answers": letter("h", b"hearth keeper 2") + letter("p", b"\1\2\3\4") + letter("o", b"out\n") + letter("q", b"\0\0"),
    "signals": b"".join(letter("s", bytes([place])) for place in range(9)),
    "input": letter("i", b"y\n" * 8192) + letter("e"),
    "cut": letter("v", b"A=B", length=100),
    "longest": letter("o", b"", length=1 << 20),
    "too_long": letter("o", b"", length=(1 << 20) + 1),
    "shell": b"Welcome to this machine\n",
}
HELLO = letter("h", b"hearth keeper 2")
LAUNCH = {
    **SEEDS,
    "empty_of_each_kind": b"".join(letter(kind) for kind in "dvakgsiehportfqz"),
    "failed": HELLO + letter("f", b"\x7fcannot run 'x': No such file"),
    "failed_bare": HELLO + letter("f", b"\x7e"),
    "failed_empty": HELLO + letter("f"),
    "failed_well": HELLO + letter("f", b"\0all is well"),
    "failed_escapes": HELLO + letter("f", b"\1\x1b[2J\x9b\xff\n\0"),
    "pids": b"".join(letter("p", pid.to_bytes(4, "little")) for pid in (0, 1, 2, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1)),
    "numbers": b"".join(letter(kind, bytes([n])) for kind in "gst" for n in (0, 1, 2, 7, 8, 255)),
    "ends": letter("q", b"\0\0") + letter("q", b"\1\x7f") + letter("q", b"\0\x80") + letter("q", b"\0\0\0"),
    "zeros_inside": letter("v", b"A=\0B") + letter("a", b"a\0b") + letter("d", b"/\0"),
    "other_greeting": letter("h", b"hearth keeper 9"),
}

if __name__ == "__main__":
    for folder, seeds in (("cli_letters", SEEDS), ("cli_launch", LAUNCH)):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (CORPUS / folder / name).write_bytes(content)
