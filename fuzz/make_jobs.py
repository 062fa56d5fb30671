#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/jobs, from docs/cluster_messages.md and not from the C code.
import struct

from make_corpus import CORPUS

REPORT, FORM, BOARD = (bytes([i]) for i in range(3))


def text(words):
    return bytes([len(words)]) + words.encode()


def identity(number):
    return bytes([number]) + b"\xa5" * 31 + struct.pack("<Q", 0x1000 + number)


def record(members=(0, 1), instance=66, epoch=4, leader=0):
    return (b"\1" + struct.pack("<QQBB", instance, epoch, leader, len(members))
            + b"".join(identity(who) + bytes([who == 9]) for who in members))


def request(job="red", serial=1, done=0, least=2, settings="v=1", place=b"place", ran=b"\0", unreached=()):
    return (struct.pack("<QQB", serial, done, least) + text(job) + text(settings) + struct.pack("<H", len(place)) + place
            + ran + bytes([len(unreached)]) + b"".join(map(identity, unreached)))


def part(job="red", spec=9, over=0, members=(0, 1), settings="v=1"):
    return (struct.pack("<QBB", spec, over, len(members)) + text(job) + text(settings)
            + b"".join(map(identity, members)))


def report(requests=(), parts=(), instance=77, term=3, sequence=1):
    return (REPORT + struct.pack("<QQQBB", instance, term, sequence, len(requests), len(parts)) + b"".join(requests)
            + b"".join(parts))


def form(members=((0, 1, 0), (1, 1, 0)), job="red", spec=9, term=3, sites=1, place=b"place"):
    head = struct.pack("<QQQQIIIIBB", 77, 5, term, spec, 9000, 0, 300, 0, len(members), sites)
    return (FORM + head + text(job)
            + b"".join(identity(who) + struct.pack("<QQBH", serial, 4, site, len(place)) + place
                       for who, serial, site in members))


def line(job="red", least=2, waiting=1, running=0, why="1 of 2 are there: anna"):
    return bytes([least, waiting, running]) + text(job) + text(why)


def board(lines=(), ended=(), refused=(), sequence=1, heard=1, term=3):
    return (BOARD + struct.pack("<QQQQBBB", 77, term, sequence, heard, len(lines), len(ended), len(refused))
            + b"".join(lines) + b"".join(ended) + b"".join(refused))


def seeds():
    yield "report_idle", report()
    yield "report_request", report([request()])
    yield "report_ran_elsewhere", report([request(least=1, ran=record((0, 7, 8, 9)))])
    yield "report_ran_here", report([request(least=1, ran=record((0, 2), instance=77))])
    yield "report_bad_record", report([request(ran=record((0, 1), leader=2))])
    yield "report_unreached", report([request(least=1, unreached=(1, 2))])
    yield "report_part", report([], [part()])
    yield "report_other_settings", report([request(settings="v=2")])
    yield "report_many", report([request(f"job {i}", i + 1) for i in range(8)], [part(f"part {i}", i + 1) for i in range(8)])
    yield "report_twice", report([request()], [part()])
    yield "report_stranger", report([], [part(members=(1, 2))])
    yield "report_long_place", report([request(place=bytes(385))])
    yield "report_other_term", report([request()], term=4)
    yield "report_same_member", report([], [part(members=(0, 0))])
    yield "form", form()
    yield "form_sites", form(((1, 1, 0), (0, 5, 1), (2, 7, 1)), sites=2)
    yield "form_stranger", form(((1, 1, 0), (9, 1, 0)))
    yield "form_old_serial", form(((0, 1, 0), (1, 4, 0)))
    yield "form_old_term", form(term=2)
    yield "form_bad_sites", form(sites=2)
    yield "form_largest", form([(i, 1, 0) for i in range(64)], "j" * 63, place=bytes(384))
    yield "board_idle", board(heard=0)
    yield "board_lines", board([line(), line("blue", 3, 0, 3, "")])
    yield "board_refused", board([line()], refused=[struct.pack("<QB", 1, 11) + text("dtype=f32 here, dtype=f16 there")])
    yield "board_ended", board(ended=[struct.pack("<Q", 9) + identity(2) + text("anna has left the group")])
    yield "board_bad_count", board([line(running=65)])
    yield "short", form()[:-1]
    yield "long", board() + b"\0"


if __name__ == "__main__":
    (CORPUS / "jobs").mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (CORPUS / "jobs" / name).write_bytes(data)
