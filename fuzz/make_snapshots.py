#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes fuzz/corpus/snapshot and tests/golden/snapshot_v1.hex, from docs/payloads.md and not from the C code.
import math
import pathlib
import struct

from make_corpus import crc32c

ROOT = pathlib.Path(__file__).resolve().parent.parent
F32, F64, F16, BF16, I32 = 0, 1, 2, 3, 5
GOLDEN_HEAD = """# SPDX-License-Identifier: Apache-2.0
# Saved state of version 1. It must decode for ever: add, never change.
# The tensors it holds are in tests/unit/gradient/test_snapshot.c.
state
"""


def tensor(name, dtype=F32, dims=(2, 3), residual=None, q=None, p=None, **fields):
    """One tensor; fields replace what follows from the rest."""
    holds = (residual is not None) | (q is not None) << 1 | (p is not None) << 2
    values = {"name_length": len(name), "dtype": dtype, "dimensions": len(dims), "holds": holds, "rank": 0,
              "step": 0, "plain_bytes": 0, "sent_bytes": 0, "before": 0.0, "after": 0.0, "rows": 0, "columns": 0}
    values.update(fields)
    out = struct.pack("<BBBBIQQQddQQ", *values.values())
    out += struct.pack(f"<{len(dims)}Q", *dims) + name.encode("latin-1")
    message = "d" if dtype == F64 else "f"
    for numbers, kind in ((residual, message), (q, "f"), (p, "f")):
        if numbers is not None:
            out += struct.pack(f"<{len(numbers)}{kind}", *numbers)
    return out


def state(*tensors, magic=b"HEARTHCS", version=1, size=4, rank=1, seed=0x1122334455667788, count=None, length=None,
          rest=b"", crc=None):
    body = b"".join(tensors) + rest
    count = len(tensors) if count is None else count
    length = 44 + len(body) if length is None else length
    out = magic + struct.pack("<IIIIQQ", version, size, rank, count, seed, length) + body
    return out + struct.pack("<I", crc32c(out) if crc is None else crc)


def full(name="layer.1", **fields):
    values = {"residual": [1.5, -2.0, 0.25, 0.0, -0.0, 3.0], "q": [0.5, 0.25, -1.0], "p": [1.0, -0.5], "rank": 1,
              "rows": 2, "columns": 3, "step": 7, "plain_bytes": 168, "sent_bytes": 140, "before": 2.5, "after": 0.125}
    values.update(fields)
    return tensor(name, **values)


def double(**fields):
    return tensor("wide", F64, (2,), [0.1, -1e300], step=3, **fields)


GOLDEN = state(tensor("a scalar", BF16, ()), tensor("empty", F16, (4, 0, 2), [], step=1), full(), double())


def seeds():
    yield "golden", GOLDEN
    yield "none", state()
    yield "bad_magic", state(magic=b"HEARTHCT")
    yield "bad_version", state(version=2)
    yield "bad_rank", state(rank=4)
    yield "bad_size", state(size=1 << 31)
    yield "bad_length", state(length=45)
    yield "bad_crc", state(crc=0)
    yield "bad_count", state(full(), count=2)
    yield "too_many", state(full(), count=0xFFFFFFFF)
    yield "rest", state(full(), rest=b"x")
    yield "short", GOLDEN[:43]
    yield "cut", GOLDEN[:-9]
    yield "same_name", state(full("x"), full("x"))
    yield "descending", state(full("y"), full("x"))
    yield "no_name", state(full(""))
    yield "long_name", state(full("n" * 255))
    yield "control_name", state(full("a\x1bb"))
    yield "zero_in_name", state(full("a\0b"))
    yield "bad_dtype", state(full(dtype=I32))
    yield "bad_dimensions", state(full(dimensions=9))
    yield "many_elements", state(tensor("x", dims=(1 << 31, 1 << 31), rows=1 << 31, columns=1 << 31))
    yield "huge_residual", state(tensor("x", dims=(1 << 59,), holds=1))
    yield "overflow", state(tensor("x", dims=(1 << 32, 1 << 32)))
    yield "zero_and_overflow", state(tensor("x", dims=(1 << 63, 1 << 63, 0)))
    yield "bad_holds", state(full(holds=15))
    yield "bad_rows", state(full(rows=3))
    yield "wrapping_rows", state(full(rows=1 << 63, columns=6))
    yield "zero_rank", state(full(rank=0))
    yield "large_rank", state(full(rank=3))
    yield "rank_alone", state(tensor("x", rank=1, rows=2, columns=3))
    yield "factor_of_no_matrix", state(full(rows=0, columns=0))
    yield "bad_energy", state(full(before=math.nan))
    yield "negative_energy", state(full(after=-1.0))
    yield "nan", state(full(residual=[1, 2, math.nan, 4, 5, 6]))
    yield "inf_f64", state(tensor("x", F64, (2,), [1, math.inf]))
    yield "inf_factor", state(full(q=[1, -math.inf, 2]))


if __name__ == "__main__":
    corpus = ROOT / "fuzz" / "corpus" / "snapshot"
    corpus.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (corpus / name).write_bytes(data)
    lines = [GOLDEN[i:i + 16].hex(" ") for i in range(0, len(GOLDEN), 16)]
    text = GOLDEN_HEAD + "".join(f"    {line}\n" for line in lines)
    (ROOT / "tests" / "golden" / "snapshot_v1.hex").write_text(text)
