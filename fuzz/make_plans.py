#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/cli_plan, from cli/cluster/cluster_plan.h and not from the C code.
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus" / "cli_plan"


def head(kind, version=1):
    return b"HPLN" + struct.pack("<II", version, kind)


def texts(*names):
    return b"".join(name.encode().ljust(64, b"\0") for name in names)


BENCH = head(1) + struct.pack("<32Q", 4, 65536, 1 << 20, *[0] * 29) + struct.pack("<II", 3, 20) + texts("int8")
NUMBERS = struct.pack("<10I", 60, 20, 28, 28, 10, 512, 16, 300, 20, 3)
DEMO = (head(2) + struct.pack("<QQ", 1, 7) + NUMBERS + struct.pack("<ff", 0.3, 0.8)
        + texts("none", "int8", "topk:0.01", "", ""))
SEEDS = {"bench": BENCH, "demo": DEMO, "version": head(1, version=2), "kind": head(9)}

for name, seed in SEEDS.items():
    (CORPUS / name).write_bytes(seed.ljust(1024, b"\0"))
(CORPUS / "empty").write_bytes(b"")
