#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/token, key_line and trust_lines, from the docs and not from the C code.
import hashlib

from make_corpus import CORPUS

MESSAGES = "0123456789abcdefghjkmnpqrstvwxyz"
SECRET = bytes(range(32))
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
ONE, TWO = "aa" * 32, "0b" * 32


def base32(data):
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 5)
    return "".join(MESSAGES[int(bits[i:i + 5], 2)] for i in range(0, len(bits), 5))


def token(name, secret=SECRET):
    check = hashlib.sha3_256(b"hearth token 1" + name.lower().encode() + b"\0" + secret).digest()[:4]
    return f"hearth1-{name}-{base32(secret + check)}"


def key_line(seed=SEED, version=1):
    check = hashlib.sha3_256(b"hearth node key 1" + seed).digest()[:4]
    return f"hearth-node-key {version} {seed.hex()} {check.hex()}\n"


def tokens():
    yield "plain", token("hearth")
    yield "upper", token("Lab-2_b.c").upper()
    yield "spaces", "\n " + token("a-b") + " \n"
    yield "longest", token("abcdefghijklmnopqrstuvwxyz-_.012")
    yield "mixed_up", token("x").replace("1p", "Lp").replace("00", "oO")
    yield "digits", SECRET.hex()
    yield "digits_upper", SECRET.hex().upper()
    yield "bad_check", token("hearth").replace("hearth1-hearth", "hearth1-heart")
    yield "bad_message", token("hearth")[:-2] + "u0"
    yield "bad_filling", token("hearth")[:-1] + "9"
    yield "bad_name", token("hea th")
    yield "cut", token("hearth")[:-1]
    yield "no_name", "hearth1-" + token("x")[10:]
    yield "empty", ""
    yield "nonsense", "sesame"


def key_lines():
    line = key_line()
    yield "plain", line
    yield "no_newline", line[:-1]
    yield "upper", line[:18] + line[18:].upper()
    yield "version", key_line(version=2)
    yield "bad_check", line[:-3] + "00\n"
    yield "bad_digit", line.replace("4ccd", "4xcd")
    yield "cut", line[:50]
    yield "more", line + "\n"
    yield "foreign", "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    yield "empty", ""


def trust_lines():
    yield "plain", f"allow {ONE} box\nrevoke {TWO} other box\n"
    yield "comments", f"# mine\n\n  allow\t{ONE}   a  b \r\n#allow {TWO}\nrevoke {TWO}"
    yield "twice", f"allow {ONE} a\n# between\nrevoke {ONE} b\nallow {TWO}"
    yield "long_name", f"allow {ONE} {'n' * 200}\n"
    yield "strange_name", f"revoke {ONE} caf\u00e9 \x1b[31m\n"
    yield "upper", f"allow {ONE.upper()}\n"
    yield "empty", ""
    yield "only_comments", "# nobody\n\n"
    yield "bad_word", f"allow {ONE}\nallowed {TWO}\n"
    yield "bad_id", f"allow {ONE}a\n"
    yield "short_id", "allow k7f3-9qwe-2xyz\n"
    yield "no_id", "revoke\n"
    yield "zero", f"allow {ONE}\n\0\n"


if __name__ == "__main__":
    for folder, seeds in (("token", tokens()), ("key_line", key_lines()), ("trust_lines", trust_lines())):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, text in seeds:
            (CORPUS / folder / name).write_bytes(text.encode())
