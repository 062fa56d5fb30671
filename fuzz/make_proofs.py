#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/proof and fuzz/corpus/knock, from docs/wire.md and not from the C code.
import hashlib
import hmac
import struct

from make_corpus import CORPUS

SECRET = b"\x01" * 32  # of the fuzzers
PROOF, REFUSE = 1, 2
OPEN, NODE, ADDRESS = range(3)
MINUTE = 0x03020100
WHOM = [b"", b"\x02" * 32, struct.pack("<BH4B", 4, 29500, 192, 0, 2, 1)]  # the fuzzer's listener


def hkdf(info):
    key = hmac.new(b"hearth 1", SECRET, hashlib.sha256).digest()
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def namespace():
    return hashlib.sha3_256(b"hearth namespace 1" + SECRET).digest()[:16]


def knock(kind, minute=MINUTE, label=b"hearth knock 2", whom=None):
    nonce = struct.pack("<IB", minute, kind) + bytes(range(5, 16))
    whom = WHOM[kind] if whom is None else whom
    mac = hmac.new(hkdf(b"knock"), label + namespace() + nonce + whom, hashlib.sha256).digest()[:16]
    return f"{namespace().hex()}.{nonce.hex()}.{mac.hex()}.hearth".encode()


def proof(kind, reason=0, instance=0, mac=b"", magic=0x5048, version=1, reserved=(0, 0)):
    head = struct.pack("<HBBBBHQ", magic, version, kind, reason, reserved[0], 0, instance)
    return (head + bytes([reserved[1]])).ljust(32, b"\0") + mac.ljust(32, b"\0")


def proofs():
    yield "proof", proof(PROOF, instance=0xA, mac=bytes(range(32)))
    for reason in range(1, 5):
        yield f"refuse_{reason}", proof(REFUSE, reason)
    yield "bad_magic", proof(PROOF, instance=1, magic=0x4748)
    yield "bad_version", proof(PROOF, instance=1, version=2)
    yield "bad_kind", proof(3, instance=1)
    yield "bad_reason", proof(REFUSE, 5)
    yield "bad_reserved", proof(PROOF, instance=1, reserved=(1, 0))
    yield "bad_middle", proof(PROOF, instance=1, reserved=(0, 1))
    yield "no_instance", proof(PROOF)
    yield "short", proof(PROOF, instance=1)[:63]


def knocks():
    good = knock(OPEN)
    yield "good", good
    yield "node", knock(NODE)
    yield "address", knock(ADDRESS)
    yield "old", knock(NODE, MINUTE - 11)
    yield "other_node", knock(NODE, whom=b"\x03" * 32)
    yield "other_address", knock(ADDRESS, whom=struct.pack("<BH4B", 4, 29500, 192, 0, 2, 2))
    yield "other_kind", knock(3, whom=b"")
    yield "wrong", knock(OPEN, label=b"hearth knock 1")
    yield "other", b"00" + good[2:]
    yield "upper", good.upper()
    yield "longer", good + b"."
    yield "name", b"example.org"


if __name__ == "__main__":
    for folder, seeds in (("proof", proofs), ("knock", knocks)):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (CORPUS / folder / name).write_bytes(data)
