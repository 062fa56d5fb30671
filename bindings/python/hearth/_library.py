# SPDX-License-Identifier: Apache-2.0
"""Finds libhearth, loads it, and declares its functions as include/hearth.h does. Nothing else knows ctypes' types."""

import ctypes
import ctypes.util
import os
import sys
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

__version__ = "0.1.0"


class Tuning(ctypes.Structure):
    """struct hearth_tuning."""

    _fields_ = [
        ("size", c_size_t), ("chunk_bytes", c_size_t), ("window_bytes", c_size_t), ("eager_bytes", c_size_t),
        ("compressed_allreduce_max_bytes", c_size_t), ("connect_timeout_ms", c_int64), ("connect_retries", c_uint32),
        ("connections", c_uint32), ("datagram_bytes", c_uint32), ("ops_max", c_uint32), ("spin_us", c_uint32),
        ("algo", c_int),
    ]


class Config(ctypes.Structure):
    """struct hearth_config."""

    _fields_ = [
        ("size", c_size_t), ("op_timeout_ms", c_int64), ("memory_max", c_size_t), ("rate", c_uint64),
        ("codec", c_char_p), ("compress_threads", c_uint32), ("log_level", c_int), ("log", c_void_p),
        ("log_arg", c_void_p), ("tuning", POINTER(Tuning)), ("environment", c_void_p),
        ("peers", c_char_p), ("rendezvous", c_char_p), ("job", c_char_p), ("rank", c_int), ("world_size", c_int),
        ("bind", c_char_p), ("advertise", c_char_p), ("transport", c_char_p), ("site", c_char_p),
        ("open_timeout_ms", c_int64), ("peer_timeout_ms", c_int64), ("link_mbps", c_uint32), ("port", ctypes.c_uint16),
        ("secret", c_char_p), ("secret_file", c_char_p), ("key_file", c_char_p), ("plain", c_int),
        ("trust_network", c_int),
        ("discover", c_char_p), ("roles", c_uint32), ("form_timeout_ms", c_int64), ("seeds", c_char_p),
        ("mdns", c_char_p), ("health", c_char_p),
    ]


class Memory(ctypes.Structure):
    """struct hearth_memory; the functions as addresses."""

    _fields_ = [("size", c_size_t), ("arg", c_void_p), ("copy_in", c_void_p), ("copy_out", c_void_p),
                ("wait", c_void_p)]


class Opts(ctypes.Structure):
    """struct hearth_opts."""

    _fields_ = [("size", c_size_t), ("timeout_ms", c_int64), ("tag", c_uint64), ("weight", c_double),
                ("flags", c_uint32), ("algo", c_int), ("codec", c_char_p), ("done", c_void_p), ("done_arg", c_void_p),
                ("priority", c_int), ("dtype", c_int), ("memory", POINTER(Memory))]


class CompressorConfig(ctypes.Structure):
    """struct hearth_compressor_config."""

    _fields_ = [("size", c_size_t), ("codec", c_char_p), ("min_count", c_size_t), ("vectors", c_int),
                ("include", c_char_p), ("exclude", c_char_p), ("warmup_steps", c_uint64), ("ramp_steps", c_uint64)]


class Tensor(ctypes.Structure):
    """struct hearth_tensor."""

    _fields_ = [("size", c_size_t), ("name", c_char_p), ("data", c_void_p), ("dtype", c_int), ("ndim", c_int),
                ("dims", POINTER(c_size_t))]


class CompressorStats(ctypes.Structure):
    """struct hearth_compressor_stats."""

    _fields_ = [("size", c_size_t), ("tensors", c_uint64), ("steps", c_uint64), ("plain_bytes", c_uint64),
                ("sent_bytes", c_uint64), ("ratio", c_double), ("captured", c_double), ("residual_norm", c_double)]


class MemberStruct(ctypes.Structure):
    """struct hearth_member."""

    _fields_ = [("size", c_size_t), ("rank", c_int), ("same_host", c_int), ("completed", c_uint64),
                ("id", ctypes.c_char * 72), ("name", ctypes.c_char * 64), ("address", ctypes.c_char * 64)]


class EventStruct(ctypes.Structure):
    """struct hearth_event."""

    _fields_ = [("size", c_size_t), ("kind", c_int), ("members", c_int), ("epoch", c_uint64), ("term", c_uint64),
                ("id", ctypes.c_char * 72), ("name", ctypes.c_char * 64), ("health", ctypes.c_char * 16),
                ("text", ctypes.c_char * 256)]


class Received(ctypes.Structure):
    """struct hearth_received."""

    _fields_ = [("size", c_size_t), ("rank", c_int), ("tag", c_uint64), ("len", c_size_t)]


class Iovec(ctypes.Structure):
    """struct hearth_iovec."""

    _fields_ = [("data", c_void_p), ("len", c_size_t)]


class MessageStruct(ctypes.Structure):
    """struct hearth_message."""

    _fields_ = [("size", c_size_t), ("data", c_void_p), ("len", c_size_t), ("rank", c_int), ("tag", c_uint64)]


class RpcLimits(ctypes.Structure):
    """struct hearth_rpc_limits."""

    _fields_ = [("size", c_size_t), ("request_max", c_size_t), ("reply_max", c_size_t), ("running", c_uint32),
                ("waiting", c_uint32)]


LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)  # hearth_log_fn
HANDLER = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t)  # hearth_rpc_fn


class CodecCall(ctypes.Structure):
    """struct hearth_codec_call."""

    _fields_ = [("size", c_size_t), ("parameters", c_char_p), ("count", c_size_t), ("key", c_uint64)]


# hearth_codec_check_fn and so on
CODEC_CHECK = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p)
CODEC_BOUND = ctypes.CFUNCTYPE(c_size_t, c_void_p, POINTER(CodecCall))
CODEC_ENCODE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(CodecCall), c_void_p, c_void_p, c_size_t, POINTER(c_size_t))
CODEC_DECODE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(CodecCall), c_void_p, c_size_t, c_void_p)


class CodecFunctions(ctypes.Structure):
    """struct hearth_codec_functions."""

    _fields_ = [("size", c_size_t), ("arg", c_void_p), ("check", CODEC_CHECK), ("bound", CODEC_BOUND),
                ("encode", CODEC_ENCODE), ("decode", CODEC_DECODE)]

# One message for each type of the header. Handles and buffers are addresses.
TYPES = {
    "-": None, "i": c_int, "u": c_uint32, "U": c_uint64, "l": c_int64, "n": c_size_t, "f": c_double, "s": c_char_p,
    "p": c_void_p, "P": POINTER(c_void_p), "I": POINTER(c_int), "N": POINTER(c_size_t), "C": POINTER(Config),
    "O": POINTER(Opts), "K": POINTER(CompressorConfig), "T": POINTER(Tensor), "S": POINTER(CompressorStats),
    "V": POINTER(c_uint64), "F": POINTER(CodecFunctions),
    "G": POINTER(Tuning), "M": POINTER(MemberStruct), "E": POINTER(EventStruct), "R": POINTER(Received),
    "W": POINTER(Iovec), "L": POINTER(RpcLimits), "D": POINTER(Memory),
}

# Result and parameters of each function; a test compares them with the header.
FUNCTIONS = {
    "version": "u",
    "version_string": "s",
    "status_scope": "i i", "status_name": "s i", "status_text": "s i",
    "error_text": "s", "error_rank": "i", "error_reason": "i", "reason_name": "s i",
    "error_fate": "i", "fate_name": "s i",
    "dtype_size": "n i", "dtype_name": "s i", "dtype_parse": "i s I",
    "op_name": "s i", "op_parse": "i s I",
    "algo_name": "s i", "algo_parse": "i s I",
    "config_init_sized": "- C n", "tuning_init_sized": "- G n", "config_env": "i C",
    "node_open_local": "i C i P", "node_open": "i C P", "node_links_text": "l p p n", "node_close": "- p",
    "node_world": "p p", "node_wait_for_peers": "i p i l", "node_interrupt": "i p", "node_next_event": "i p E l",
    "node_on_event": "i p p p", "node_status_json": "l p p n", "node_metrics_text": "l p p n",
    "mem_alloc": "p p n", "mem_free": "- p p",
    "group_rank": "i p", "group_size": "i p", "group_split": "i p i i O P", "group_close": "- p",
    "group_form": "i p s i O P", "group_reform": "i P O", "group_adapt": "i p O", "group_member": "i p i M",
    "memory_init_sized": "- D n", "group_set_memory": "i p D",
    "group_same": "i p p n O I", "group_traffic": "i p V V",
    "opts_init_sized": "- O n",
    "request_test": "i p", "request_wait": "i p l", "request_wait_all": "i P n l", "request_wait_any": "i P n l N",
    "request_cancel": "i p", "request_fd": "i p", "request_error": "s p", "request_error_rank": "i p",
    "request_error_reason": "i p", "request_error_fate": "i p", "request_close": "- p",
    "probe": "i p i U O R", "message_free": "- p",
    "rpc_limits_init_sized": "- L n", "rpc_register": "i p s p p L", "rpc_reply": "i p p n", "rpc_fail": "i p s",
    "rpc_group": "p p", "rpc_rank": "i p", "rpc_time_left": "l p",
    "tensor_init_sized": "- T n",
    "codec_check": "i s", "codec_bound": "n s n i", "codec_compress": "i s U p n i p p n N",
    "codec_decompress": "i p n p n i",
    "codec_functions_init_sized": "- F n", "codec_register": "i s F",
    "compressor_config_init_sized": "- K n", "compressor_open": "i p K P", "compressor_close": "- p",
    "compressor_add_rule": "i p s s", "compressor_reset": "i p s", "compressor_scale": "i p f",
    "compressor_save": "l p p n", "compressor_load": "i p p n", "compressor_stats": "i p s S",
    "compressor_explain": "l p s p n",
    "sync_open": "i p s i P", "sync_open_with": "i p i P", "sync_close": "- p", "sync_add": "i p T",
    "sync_set_data": "i p i p", "sync_set_weight": "i p f", "sync_ready": "i p i", "sync_wait": "i p O",
    "sync_drop": "- p", "sync_steps": "U p", "sync_compressor": "p p",
}

# Collectives: each has a non-blocking form, NAME_nb, with the request as one more parameter.
COLLECTIVES = {
    "all_reduce": "i p p p n i i O", "reduce_scatter": "i p p p n i i O", "reduce_scatterv": "i p p p N i i O",
    "all_gather": "i p p p n i O", "all_gatherv": "i p p p N i O", "broadcast": "i p p n i i O",
    "reduce": "i p p p n i i i O", "gather": "i p p p n i i O", "gatherv": "i p p n p N i i O",
    "scatter": "i p p p n i i O", "scatterv": "i p p N p n i i O", "all_to_all": "i p p p n i O",
    "all_to_allv": "i p p N p N i O", "scan": "i p p p n i i O", "exclusive_scan": "i p p p n i i O",
    "barrier": "i p O", "all_reduce_compressed": "i p p n i i s p O", "compressor_all_reduce": "i p T i O",
}

# Messages: they have non-blocking forms as well.
MESSAGES = {
    "send": "i p i U p n O", "recv": "i p i U p n O R", "sendv": "i p i U W n O", "recvv": "i p i U W n O R",
    "message_recv": "i p i U O P", "rpc_call": "i p i s p n O P",
}


def soname(version=__version__):
    """The file name that belongs to this package: while major is 0 every minor version has its own."""
    major, minor, _ = version.split(".")
    if sys.platform == "darwin":
        return f"libhearth.{major}.{minor}.dylib"
    return f"libhearth.so.{major}.{minor}"


def places():
    """Where the library may be, in order: named by the user, in the package, in the tree's build, in the system."""
    named = os.environ.get("HEARTH_LIBRARY")
    if named:
        return [named]
    here = Path(__file__).resolve().parent
    found = [here / "lib" / soname()]
    if (here.parents[2] / "include" / "hearth.h").exists():  # a source tree
        found.append(here.parents[2] / "build" / soname())
    found += [Path(sys.prefix) / "lib" / soname(), Path("/usr/local/lib") / soname()]
    return [str(path) for path in found if path.exists()] + [soname()]


def forms():
    """Result and parameters of all functions."""
    both = {**COLLECTIVES, **MESSAGES}
    return {**FUNCTIONS, **both, **{f"{name}_nb": form + " P" for name, form in both.items()}}


def declare(library):
    """Gives every function its types, and takes the prefix off its name."""
    for name, form in forms().items():
        function = getattr(library, f"hearth_{name}")
        result, *parameters = (TYPES[message] for message in form.split())
        function.restype, function.argtypes = result, parameters
        setattr(library, name, function)


def load():
    """The library. ImportError lists the places searched, and the problem with each."""
    tried = []
    for path in places():
        try:
            library = ctypes.CDLL(path)
            library.hearth_version.restype = c_uint32
            version = library.hearth_version()
        except (OSError, AttributeError) as error:
            tried.append(f"{path}: {error}")
            continue
        theirs = f"{version >> 16}.{version >> 8 & 255}.{version & 255}"
        if theirs.split(".")[:2] != __version__.split(".")[:2]:
            raise ImportError(f"{path} is libhearth {theirs}, but this is hearth {__version__} for Python: "
                              "install both from the same version")
        try:
            declare(library)
        except AttributeError as error:
            raise ImportError(f"{path} is another build of libhearth {theirs}: {error}") from None
        library.path = path
        return library
    raise ImportError("libhearth was not found. Build it with `make`, or name it in HEARTH_LIBRARY. Tried:\n  " +
                      "\n  ".join(tried))


lib = load()
