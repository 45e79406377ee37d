"""What the tests of a CUDA allocator under torch share. They run on the stand-in, under the allocator that is installed.

TEST_ALLOCATOR names it: native or berth; with BERTH_MEMORY=plain berth on plain memory. What they say holds for every allocator that PyTorch's users may count on,
so the native one shows that the tests are right. On a GPU, one with 80 GB as the stand-in's, bench/gpu runs them: uses are then real
kernels behind a pause of their stream, and no checker looks on.
"""

import contextlib
import ctypes
import gc
import os
import unittest

import torch

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
ALLOCATOR = os.environ["TEST_ALLOCATOR"]
PLAIN = os.environ.get("BERTH_MEMORY") == "plain"  # berth on cudaMalloc throughout
RANDOM, LAZY, EAGER = 0, 1, 2


class Gpu:
    """In place of the stand-in's functions where there is a real runtime."""

    pace = EAGER

    def berth_standin_used(self, device):
        free, total = torch.cuda.mem_get_info(device)
        return total - free

    def berth_standin_violations(self):
        return 0

    def berth_standin_version(self):
        return 0

    def berth_standin_set_pace(self, pace):
        self.pace = pace

    def __getattr__(self, name):
        raise unittest.SkipTest(f"{name} is the stand-in's")


runtime = ctypes.CDLL(None)
if hasattr(runtime, "berth_standin_version"):
    runtime.berth_standin_used.restype = ctypes.c_size_t
    runtime.berth_standin_violations.restype = ctypes.c_size_t
    runtime.berth_standin_calls.restype = ctypes.c_uint64
else:
    runtime = Gpu()


class Access(ctypes.Structure):
    _fields_ = [("pointer", ctypes.c_void_p), ("size", ctypes.c_size_t), ("writes", ctypes.c_int)]


def use(tensor, stream, writes=True):
    """A kernel on `stream` that uses all of the tensor, and that the stand-in's checker knows of."""
    if isinstance(runtime, Gpu):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(
                {EAGER: 1, RANDOM: 50_000, LAZY: 50_000_000}[runtime.pace]
            )  # cycles: LAZY outlasts what the host does next
            if writes:
                tensor.fill_(1)
        return
    access = Access(tensor.data_ptr(), tensor.untyped_storage().nbytes(), int(writes))
    assert (
        runtime.berth_standin_launch(
            ctypes.c_void_p(stream.cuda_stream), b"use", ctypes.byref(access), ctypes.c_size_t(1)
        )
        == 0
    )


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def overlap(one, other):
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + other.untyped_storage().nbytes() and second < first + one.untyped_storage().nbytes()


def driver_bytes(device=0):
    return runtime.berth_standin_used(device)


@contextlib.contextmanager
def rounding(divisions):
    """Sizes in so many steps between powers of two."""
    torch._C._accelerator_setAllocatorSettings(f"roundup_power2_divisions:{divisions}")
    try:
        yield
    finally:
        torch._C._accelerator_setAllocatorSettings("roundup_power2_divisions:1")


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
