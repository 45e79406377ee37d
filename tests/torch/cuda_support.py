"""What the tests of a CUDA allocator under torch share. They run on the stand-in, under the allocator that is installed.

TEST_ALLOCATOR names it: native or berth. What they say holds for every allocator that PyTorch's users may count on,
so the native one shows that the tests are right.
"""

import ctypes
import gc
import os
import unittest

import torch

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
ALLOCATOR = os.environ["TEST_ALLOCATOR"]
RANDOM, LAZY, EAGER = 0, 1, 2

runtime = ctypes.CDLL(None)
runtime.berth_standin_used.restype = ctypes.c_size_t
runtime.berth_standin_violations.restype = ctypes.c_size_t
runtime.berth_standin_calls.restype = ctypes.c_uint64


class Access(ctypes.Structure):
    _fields_ = [("pointer", ctypes.c_void_p), ("size", ctypes.c_size_t), ("writes", ctypes.c_int)]


def use(tensor, stream, writes=True):
    """A kernel on `stream` that uses all of the tensor, and that the stand-in's checker knows of."""
    access = Access(tensor.data_ptr(), tensor.untyped_storage().nbytes(), int(writes))
    assert runtime.berth_standin_launch(ctypes.c_void_p(stream.cuda_stream), b"use", ctypes.byref(access), ctypes.c_size_t(1)) == 0


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def overlap(one, other):
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + other.untyped_storage().nbytes() and second < first + one.untyped_storage().nbytes()


def driver_bytes(device=0):
    return runtime.berth_standin_used(device)


def stat(name):
    return torch.cuda.memory_stats()[name]


class CudaCase(unittest.TestCase):
    """Starts with nothing cached and ends with no violation of happens-before."""

    pace = EAGER

    @classmethod
    def setUpClass(cls):
        if torch.cuda.get_allocator_backend() != ALLOCATOR:
            raise RuntimeError(f"the allocator is {torch.cuda.get_allocator_backend()}, wanted {ALLOCATOR}")
        torch.cuda.init()
        empty(1)

    def setUp(self):
        self.settle()
        runtime.berth_standin_set_pace(self.pace)
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()

    def tearDown(self):
        torch.cuda.memory._record_memory_history(None)
        torch.cuda.set_per_process_memory_fraction(1.0)
        self.settle()
        self.assertEqual(runtime.berth_standin_violations(), 0)

    @staticmethod
    def settle():
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
