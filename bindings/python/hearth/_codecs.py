# SPDX-License-Identifier: Apache-2.0
"""Codecs written in Python: an object with bound, encode and decode becomes a codec under a name."""

import ctypes
import sys
from typing import Any

from . import _errors
from ._calls import text_for_c
from ._library import CODEC_BOUND, CODEC_CHECK, CODEC_DECODE, CODEC_ENCODE, CodecFunctions, lib

_kept = []  # what the library may call as long as the process lives
_newest = {}  # the codec of each name
_FAILED = _errors.Invalid.status


def _status(error):
    """For C. Nobody can catch it, so it is shown, unless it only says what the codec refuses."""
    if isinstance(error, MemoryError):
        return _errors.NoMemory.status
    if not isinstance(error, ValueError):
        sys.excepthook(type(error), error, error.__traceback__)
    return _FAILED


def _attempt(method, *arguments):
    """A status for C, and what the method returned."""
    try:
        return 0, method(*arguments)
    except BaseException as error:
        return _status(error), None


def _copy(address, length):
    """Bytes that may outlive the call, whoever keeps a view of them."""
    return (ctypes.c_char * length).from_address(address).raw if length else b""


def _functions(codec):
    """The codec's methods as C calls them. Nothing is raised into C."""
    def check(_, parameters):
        return _attempt(codec.check, parameters.decode())[0]

    def bound(_, call):
        status, most = _attempt(lambda: int(codec.bound(call[0].count, call[0].parameters.decode())))
        return 0 if status else min(max(most, 0), (1 << 48) + 1)

    def encode(_, call, values, target, size, length):
        def method():
            given = memoryview(_copy(values, 4 * call[0].count)).cast("f")
            data = memoryview(codec.encode(given, call[0].key, call[0].parameters.decode())).tobytes()
            length[0] = len(data)
            ctypes.memmove(target, data, min(len(data), size))  # the library refuses what is longer
        return _attempt(method)[0]

    def decode(_, call, data, length, values):
        def method():
            numbers = bytearray(4 * call[0].count)
            codec.decode(_copy(data, length), memoryview(numbers).cast("f"), call[0].key, call[0].parameters.decode())
            ctypes.memmove(values, (ctypes.c_char * len(numbers)).from_buffer(numbers), len(numbers))
        return _attempt(method)[0]

    functions = CodecFunctions()
    lib.codec_functions_init_sized(functions, ctypes.sizeof(functions))
    functions.check = CODEC_CHECK(check) if hasattr(codec, "check") else CODEC_CHECK()
    functions.bound, functions.encode, functions.decode = CODEC_BOUND(bound), CODEC_ENCODE(encode), CODEC_DECODE(decode)
    return functions


def register_codec(name: str, codec: Any) -> None:
    """Makes a Python object a codec: its name is good wherever a codec is named, with parameters as NAME:PARAMETERS.

    The object has three methods, and a fourth if it takes parameters. Values are a memoryview of f32, whatever type
    the tensor has; residuals are the library's business.

        bound(count, parameters)                  the length of the longest payload of count elements
        encode(values, key, parameters)           the payload: bytes, or anything with a buffer
        decode(payload, values, key, parameters)  writes values, which are all 0 before, or raises ValueError
        check(parameters)                         raises ValueError if it does not take them; "": none are given

    A payload may come from another member: decode checks it. Methods run on threads of the library, several at a
    time. A ValueError refuses; other exceptions do, too, and sys.excepthook shows them. All members register
    the codec, with methods that do the same.

    >>> import hearth
    >>> from array import array
    >>> class Signs:
    ...     def bound(self, count, parameters):
    ...         return count
    ...     def encode(self, values, key, parameters):
    ...         return bytes(value > 0 for value in values)
    ...     def decode(self, payload, values, key, parameters):
    ...         if len(payload) != len(values) or max(payload) > 1:
    ...             raise ValueError("not signs")
    ...         for i, sign in enumerate(payload):
    ...             values[i] = 1.0 if sign else -1.0
    >>> hearth.register_codec("signs", Signs())
    >>> residual = array("f", [0, 0])
    >>> data = hearth.compress("signs", array("f", [0.5, -3]), residual)
    >>> hearth.decompress(data, array("f", [0, 0])).tolist(), residual.tolist()
    ([1.0, -1.0], [-0.5, -2.0])
    """
    for method in ("bound", "encode", "decode"):
        if not callable(getattr(codec, method, None)):
            raise TypeError(f"register_codec of {name!r}: the codec has no method {method}")
    if _newest.get(name) is codec:
        return
    functions = _functions(codec)
    _errors.check(lib.codec_register(text_for_c(name, "name"), functions))
    _kept.append(functions)  # it refers to the codec
    _newest[name] = codec
