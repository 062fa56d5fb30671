#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/cli_letters, from cli/post.h and not from the C code.
import pathlib

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus" / "cli_letters"


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

if __name__ == "__main__":
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (CORPUS / name).write_bytes(content)
