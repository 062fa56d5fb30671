# SPDX-License-Identifier: Apache-2.0
"""Whose memory is taken, how it is seen, and what is refused."""

import ctypes
import mmap
from array import array

from members import Watched, needs_numpy, needs_torch, numpy, torch

import hearth
from hearth._buffers import DTYPES, NAMES, counts_of, dtype_of, view


class OnlyDLPack:
    """Nothing but what DLPack asks for."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device, 0


class OnlyInterface:
    def __init__(self, **told):
        self.__array_interface__ = told


class Standard(Watched):
    def test_types_of_array(self):
        for message, name in {"f": "f32", "d": "f64", "b": "i8", "i": "i32", "q": "i64", "l": "i64", "B": "u8",
                             "I": "u32", "Q": "u64", "L": "u64"}.items():
            values = array(message, [1, 2, 3])
            found = view(values)
            self.assertEqual((found.address, found.count), values.buffer_info())
            self.assertEqual(NAMES[found.dtype], name)

    def test_bytes_only_where_they_are_read(self):
        text = b"abc"
        self.assertEqual(ctypes.string_at(view(text, False, "source").address, 3), text)
        with self.assertRaisesRegex(hearth.Invalid, r"target is read-only \(bytes\).*bytearray"):
            view(text)

    def test_a_bytearray_cannot_change_its_length_while_it_is_seen(self):
        text = bytearray(8)
        found = view(text)
        with self.assertRaises(BufferError):
            text.append(0)
        del found
        text.append(0)

    def test_memoryview_with_a_shape(self):
        found = view(memoryview(bytearray(48)).cast("f", (3, 4)))
        self.assertEqual((found.count, found.shape, NAMES[found.dtype]), (12, (3, 4), "f32"))

    def test_ctypes_arrays_and_maps(self):
        block = (ctypes.c_double * 4)()
        found = view(block)
        self.assertEqual((found.address, found.count, NAMES[found.dtype]), (ctypes.addressof(block), 4, "f64"))
        self.assertEqual(NAMES[view((ctypes.c_long * 2)()).dtype], "i64")
        with mmap.mmap(-1, 64) as area:
            found = view(area)
            self.assertEqual(found.count, 64)
            del found

    def test_nothing_at_all(self):
        for empty in (b"", bytearray(), array("f"), memoryview(b"")):
            self.assertEqual(view(empty, False, "source").count, 0)

    def test_strided(self):
        with self.assertRaisesRegex(hearth.Invalid, "target is not C-contiguous.*contiguous copy"):
            view(memoryview(bytearray(8))[::2])

    def test_types_that_there_are_not(self):
        with self.assertRaisesRegex(hearth.Unsupported, r"i16, which Hearth has no type for.*cast\('B'\)"):
            view(array("h", [1]))
        with self.assertRaisesRegex(hearth.Unsupported, "format '>f'"):
            view(memoryview((ctypes.c_float.__ctype_be__ * 2)()))

    def test_things_without_memory(self):
        for thing in ([1.0], 3, "text", None, object()):
            with self.assertRaisesRegex(TypeError, r"source is of type builtins.*takes a numpy array"):
                view(thing, False, "source")

    def test_raw_memory(self):
        block = (ctypes.c_float * 8)()
        found = view(hearth.Memory(ctypes.addressof(block), 8, "f32", block))
        self.assertEqual((found.address, found.count, found.dtype), (ctypes.addressof(block), 8, 0))
        with self.assertRaisesRegex(hearth.Unsupported, "'f31'; there are f32"):
            view(hearth.Memory(0, 0, "f31"))
        with self.assertRaises(hearth.Invalid):
            view(hearth.Memory(0, -1, "f32"))

    def test_names_of_types(self):
        for name, number in DTYPES.items():
            self.assertEqual(dtype_of(name), number)
        self.assertEqual(dtype_of("torch.bfloat16"), DTYPES["bf16"])

    def test_array_interface(self):
        block = (ctypes.c_int32 * 6)()
        address = ctypes.addressof(block)
        found = view(OnlyInterface(data=(address, False), typestr="<i4", shape=(2, 3), version=3))
        self.assertEqual((found.address, found.count, NAMES[found.dtype], found.shape), (address, 6, "i32", (2, 3)))
        with self.assertRaises(hearth.Invalid):
            view(OnlyInterface(data=(address, True), typestr="<i4", shape=(6,), version=3))
        with self.assertRaises(hearth.Invalid):
            view(OnlyInterface(data=(address, False), typestr="<i4", shape=(3,), strides=(8,), version=3))
        with self.assertRaises(hearth.Unsupported):
            view(OnlyInterface(data=(address, False), typestr=">i4", shape=(3,), version=3))
        with self.assertRaises(hearth.Unsupported):
            view(OnlyInterface(data=(address, False), typestr="<c8", shape=(3,), version=3))

    def test_counts(self):
        self.assertEqual(counts_of((1, 2), 2, "counts")[1], [1, 2])
        for bad in ([1], [1, -1], [1, 1 << 62]):
            with self.assertRaisesRegex(hearth.Invalid, "counts"):
                counts_of(bad, 2, "counts")


@needs_numpy
class Numpy(Watched):
    def test_every_type(self):
        for name, ours in {"f4": "f32", "f8": "f64", "f2": "f16", "i1": "i8", "i4": "i32", "i8": "i64", "u1": "u8",
                           "u4": "u32", "u8": "u64", "?": "u8"}.items():
            values = numpy.zeros((2, 3), name)
            found = view(values)
            self.assertEqual((found.address, found.count, found.shape), (values.ctypes.data, 6, (2, 3)))
            self.assertEqual((NAMES[found.dtype], found.truth), (ours, name == "?"))

    def test_types_that_there_are_not(self):
        for name in ("i2", "u2", "c8", "M8[s]", "S3", "O", ">f4", "f4,i4"):
            with self.assertRaises((hearth.Unsupported, TypeError), msg=name):
                view(numpy.zeros(2, name))

    def test_a_type_refused_once_does_not_spoil_others(self):
        with self.assertRaises((hearth.Unsupported, TypeError)):
            view(numpy.zeros(2, "M8[s]"))
        self.assertEqual(view(numpy.zeros(2, "f4")).count, 2)

    def test_order_and_strides(self):
        good = numpy.zeros((4, 6), "f4")
        self.assertEqual(view(good[1:3]).address, good.ctypes.data + 24)
        for bad in (good.T, good[:, 1:], good[::2], numpy.asfortranarray(good), good[::-1]):
            with self.assertRaisesRegex(hearth.Invalid, "not C-contiguous"):
                view(bad)

    def test_read_only(self):
        values = numpy.zeros(4)
        values.flags.writeable = False
        self.assertEqual(view(values, False, "source").address, values.ctypes.data)
        with self.assertRaisesRegex(hearth.Invalid, "read-only"):
            view(values)

    def test_scalar_and_empty(self):
        self.assertEqual((view(numpy.zeros(())).count, view(numpy.zeros(())).shape), (1, ()))
        self.assertEqual(view(numpy.zeros((0, 3))).count, 0)

    def test_dlpack(self):
        values = numpy.arange(6, dtype="f4").reshape(2, 3)
        found = view(OnlyDLPack(values))
        self.assertEqual((found.address, found.count, found.shape, NAMES[found.dtype]),
                         (values.ctypes.data, 6, (2, 3), "f32"))
        with self.assertRaisesRegex(hearth.Invalid, "not C-contiguous"):
            view(OnlyDLPack(values[:, 1:]))
        with self.assertRaisesRegex(hearth.Unsupported, "device"):
            view(OnlyDLPack(values, device=2))
        with self.assertRaisesRegex(hearth.Unsupported, "16 bits"):
            view(OnlyDLPack(numpy.zeros(2, "i2")))


@needs_torch
class Torch(Watched):
    def test_every_type(self):
        for kind, ours in {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
                           torch.int8: "i8", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8",
                           torch.bool: "u8"}.items():
            tensor = torch.zeros(2, 3, dtype=kind)
            found = view(tensor)
            self.assertEqual((found.address, found.count, found.shape), (tensor.data_ptr(), 6, (2, 3)))
            self.assertEqual(NAMES[found.dtype], ours)

    def test_refused(self):
        for bad in (torch.zeros(2, 3).t(), torch.zeros(4)[::2]):
            with self.assertRaisesRegex(hearth.Invalid, "tensor.contiguous"):
                view(bad)
        for bad in (torch.zeros(2, dtype=torch.int16), torch.zeros(2, dtype=torch.complex64),
                    torch.zeros(3).to_sparse()):
            with self.assertRaises(hearth.Unsupported):
                view(bad)

    def test_parameters_and_parts(self):
        weight = torch.nn.Parameter(torch.zeros(4))
        self.assertEqual(view(weight).address, weight.data_ptr())
        self.assertEqual(view(weight.data[1:]).address, weight.data_ptr() + 4)
