# SPDX-License-Identifier: Apache-2.0
"""The ctypes declarations are those of include/hearth.h: functions, structs, numbers."""

import ctypes
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from members import Watched
from places import SOURCE

import hearth
from hearth import _buffers, _calls, _errors, _home, _library, _messages, _nodes

HEADER = (SOURCE / "include/hearth.h").read_text()
CODE = re.sub(r"/\*.*?\*/", " ", HEADER, flags=re.S)

MESSAGES = {
    "void": "-", "int": "i", "uint32_t": "u", "uint64_t": "U", "int64_t": "l", "size_t": "n", "double": "f",
    "const char *": "s", "char *": "p", "void *": "p", "const void *": "p", "int *": "I", "size_t *": "N",
    "uint64_t *": "V", "const size_t *": "N", "struct hearth_config *": "C", "struct hearth_opts *": "O",
    "struct hearth_compressor_config *": "K", "struct hearth_tensor *": "T", "struct hearth_compressor_stats *": "S",
    "struct hearth_codec_functions *": "F",
    "struct hearth_tuning *": "G", "struct hearth_member *": "M", "struct hearth_event *": "E",
    "struct hearth_received *": "R", "struct hearth_iovec *": "W", "struct hearth_message *": "p",
    "struct hearth_message **": "P", "struct hearth_rpc_limits *": "L",
    "struct hearth_memory *": "D",
}


def message(kind):
    """The message of _library.TYPES for a type of the header."""
    kind = " ".join(kind.replace("*", " * ").split()).replace("* *", "**")
    if re.fullmatch(r"(const )?hearth_\w+ \*", kind):
        return "p"  # a handle
    if re.fullmatch(r"hearth_\w+ (\*\*|\* const \*)", kind):
        return "P"  # a handle to be filled in, or many of them
    kind = re.sub(r"\benum \w+", "int", kind)
    bare = kind.replace("const struct", "struct")
    return MESSAGES.get(kind) or MESSAGES[bare]


def parameter(text):
    """The type of one parameter: its name goes, and an array is a pointer."""
    text = re.sub(r"(\w+)\[\]$", r"*\1", text.strip())
    return "" if text == "void" else re.sub(r"(?<=[\s*])\w+$", "", text)


def functions():
    found = {}
    for kind, name, parameters in re.findall(r"HEARTH_API ([\w\s*]+?)\bhearth_(\w+)\(([^)]*)\);", CODE):
        given = [parameter(each) for each in parameters.split(",")]
        found[name] = " ".join([message(kind)] + [message(each) for each in given if each])
    return found


def structs():
    """Names of the fields of each struct, in order."""
    found = {}
    for name, body in re.findall(r"struct (hearth_\w+) \{(.*?)\};", CODE, flags=re.S):
        found[name] = [re.search(r"(\w+)(\[\d+\])?$", field.strip())[1] for field in re.split("[;,]", body)
                       if field.strip()]
    return found


def enums():
    found = {}
    for name, body in re.findall(r"enum (\w+) \{(.*?)\}", CODE, flags=re.S):
        last, found[name] = -1, {}
        for item in filter(None, map(str.strip, body.split(","))):
            label, _, value = item.partition("=")
            last = eval(value.strip().replace("u", "")) if value else last + 1
            found[name][label.strip()] = last
    return found


STRUCTS = {"hearth_tuning": _library.Tuning, "hearth_config": _library.Config, "hearth_opts": _library.Opts, "hearth_tensor": _library.Tensor,
           "hearth_compressor_config": _library.CompressorConfig, "hearth_compressor_stats": _library.CompressorStats,
           "hearth_codec_call": _library.CodecCall, "hearth_codec_functions": _library.CodecFunctions,
           "hearth_member": _library.MemberStruct, "hearth_event": _library.EventStruct,
           "hearth_received": _library.Received, "hearth_iovec": _library.Iovec, "hearth_message": _library.MessageStruct,
           "hearth_rpc_limits": _library.RpcLimits,
           "hearth_memory": _library.Memory}


class Signatures(Watched):
    def test_every_function_of_the_header_with_its_types(self):
        ours, theirs = _library.forms(), functions()
        self.assertGreater(len(theirs), 80)
        self.assertEqual({name: ours.get(name) for name in theirs}, theirs)
        self.assertEqual(set(ours) - set(theirs), set())

    def test_every_struct_has_the_fields_of_the_header(self):
        theirs = structs()
        self.assertEqual(set(theirs), set(STRUCTS))
        for name, fields in theirs.items():
            self.assertEqual([field[0] for field in STRUCTS[name]._fields_], fields, name)

    @unittest.skipIf(shutil.which("cc") is None, "there is no C compiler")
    def test_every_field_is_where_c_has_it(self):
        lines = []
        for name, ours in STRUCTS.items():
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            for field, *_ in ours._fields_:
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof(struct {name}, {field}), '
                             f"sizeof(((struct {name} *)0)->{field}));")
        with tempfile.TemporaryDirectory() as place:
            source = Path(place, "layout.c")
            source.write_text("#include <stdio.h>\n#include <hearth.h>\nint main(void){" + "\n".join(lines) + "}\n")
            subprocess.run(["cc", "-I", SOURCE / "include", source, "-o", Path(place, "layout")], check=True, timeout=60)
            told = subprocess.check_output([Path(place, "layout")], timeout=60, text=True)
        expected = []
        for name, ours in STRUCTS.items():
            expected.append(f"{name} {ctypes.sizeof(ours)}")
            for field, *_ in ours._fields_:
                place = getattr(ours, field)
                expected.append(f"{name}.{field} {place.offset} {place.size}")
        self.assertEqual(told.splitlines(), expected)

    def test_numbers_of_the_header(self):
        theirs = enums()
        prefixes = {"hearth_dtype": "HEARTH_", "hearth_op": "HEARTH_OP_", "hearth_algo": "HEARTH_ALGO_",
                    "hearth_log_level": "HEARTH_LOG_", "hearth_flag": "HEARTH_FLAG_", "hearth_event_kind": "HEARTH_EVENT_",
                    "hearth_priority": "HEARTH_PRIORITY_"}
        lower = {name: {label.removeprefix(prefix).lower(): value for label, value in theirs[name].items()}
                 for name, prefix in prefixes.items()}
        self.assertEqual(_buffers.DTYPES, lower["hearth_dtype"])
        self.assertEqual(_calls.OPS, lower["hearth_op"])
        self.assertEqual(_calls.ALGOS, lower["hearth_algo"])
        self.assertEqual(_nodes.LEVELS, lower["hearth_log_level"])
        self.assertEqual({"restore": _calls.RESTORE, "rank_order": _calls.RANK_ORDER, "sync_send": _messages.SYNC_SEND},
                         lower["hearth_flag"])
        self.assertEqual(_messages.PRIORITIES, lower["hearth_priority"])
        self.assertIn(f"#define HEARTH_ANY_RANK ({hearth.ANY_RANK})", CODE)
        self.assertRegex(CODE, r"#define HEARTH_ANY_TAG +UINT64_MAX\b")
        self.assertEqual(hearth.ANY_TAG, ctypes.c_uint64(-1).value)
        self.assertEqual({name: value for value, name in _home.EVENTS.items()}, lower["hearth_event_kind"])
        statuses = {value for value in theirs["hearth_status"].values() if value < 0}
        self.assertEqual(set(_errors.CLASSES), statuses)
        for name in ("OK", "BEHIND", "PENDING"):
            self.assertEqual(getattr(_errors, name), theirs["hearth_status"][f"HEARTH_{name}"], name)
        for status, kind in _errors.CLASSES.items():
            name = next(name for name, value in theirs["hearth_status"].items() if value == status)
            self.assertEqual(kind("").code, name)
            self.assertTrue(kind.__name__.upper().startswith(name[len("HEARTH_"):].replace("_", "")), (kind, name))

    def test_sizes_of_types(self):
        for number, size in _buffers.SIZES.items():
            self.assertEqual(_library.lib.dtype_size(number), size)
            self.assertEqual(_library.lib.dtype_name(number).decode(), _buffers.NAMES[number])

    def test_every_collective_is_a_method_in_both_forms(self):
        for name in set(_library.COLLECTIVES) - {"compressor_all_reduce"}:
            for method in (name, f"{name}_nb"):
                self.assertTrue(callable(getattr(hearth.Group, method)), method)
                self.assertTrue(getattr(hearth.Group, method).__doc__, method)

    def test_every_message_is_a_method_in_both_forms(self):
        for name in ("send", "recv", "sendv", "recvv", "recv_message"):
            self.assertIn({"recv_message": "message_recv"}.get(name, name), _library.MESSAGES)
            for method in (name, f"{name}_nb"):
                self.assertTrue(getattr(hearth.Group, method).__doc__, method)

    def test_fates_have_names(self):
        for label, value in enums()["hearth_fate"].items():
            name = label[len("HEARTH_FATE_"):].lower()
            self.assertEqual(_errors.make(-301, "", fate=value).fate, name)

    def test_exceptions_are_grouped_as_in_c(self):
        groups = {1: hearth.ArgumentError, 2: hearth.OperationError, 3: hearth.PeerError, 4: hearth.GroupError,
                  5: hearth.NodeError}
        for status, kind in _errors.CLASSES.items():
            self.assertTrue(issubclass(kind, groups[_library.lib.status_scope(status)]), kind)

    def test_public_names_exist_and_are_documented(self):
        for name in hearth.__all__:
            self.assertTrue(hasattr(hearth, name), name)
            if name != "__version__":
                self.assertTrue(getattr(hearth, name).__doc__, name)
