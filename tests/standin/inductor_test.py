#!/usr/bin/env python3
"""Models that torch.compile made Triton kernels of, on the stand-in. Runs under its launcher, with the interpreter that has
torch; skipped where that does not find Triton.

The kernels are compiled for the GPU that was chosen, loaded, and launched as nothing.
"""

import ctypes
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("triton") is None:
    print("no Triton here")
    sys.exit(77)

caches = tempfile.TemporaryDirectory()
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", caches.name)
os.environ.setdefault("TRITON_CACHE_DIR", caches.name + "/triton")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes of its own

import torch
import torch.nn as nn

runtime = ctypes.CDLL(None)
runtime.berth_standin_calls.restype = ctypes.c_uint64
runtime.berth_standin_violations.restype = ctypes.c_size_t


def calls(name):
    return runtime.berth_standin_calls(name.encode())


def train(mode=None, steps=4):
    torch.set_float32_matmul_precision("high")
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8)).cuda()
    compiled = torch.compile(model, mode=mode)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(steps):
        compiled(torch.zeros(32, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


class Inductor(unittest.TestCase):
    def tearDown(self):
        torch._dynamo.reset()
        torch.cuda.synchronize()
        self.assertEqual(runtime.berth_standin_violations(), 0)

    def test_a_model_trains_and_a_second_program_compiles_nothing(self):
        launches = calls("cuLaunchKernel")
        train()
        self.assertGreaterEqual(calls("cuLaunchKernel") - launches, 4 * 2)
        again = subprocess.run([sys.executable, "-B", __file__, "again"], capture_output=True, text=True, timeout=300)
        self.assertEqual((again.stdout, again.returncode), ("hits 2, misses 0\n", 0), again.stderr)

    def test_graphs_replay_compiled_kernels(self):
        graphs = calls("cudaGraphLaunch")
        train("reduce-overhead", 6)
        self.assertGreaterEqual(calls("cudaGraphLaunch") - graphs, 4)

    def test_a_program_s_own_kernel_is_tuned(self):
        import triton
        import triton.language as tl

        @triton.autotune(configs=[triton.Config({"SIZE": size}) for size in (128, 256)], key=["count"])
        @triton.jit
        def add(a, b, result, count, SIZE: tl.constexpr):
            places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
            inside = places < count
            tl.store(result + places, tl.load(a + places, inside) + tl.load(b + places, inside), inside)

        x = torch.zeros(10_000, device="cuda")
        launches = calls("cuLaunchKernelEx")
        for _ in range(3):
            add[lambda meta: (triton.cdiv(x.numel(), meta["SIZE"]),)](x, x, x, x.numel())
        self.assertGreater(calls("cuLaunchKernelEx") - launches, 3)  # more while it was tuned
        self.assertLess(calls("cuLaunchKernelEx") - launches, 50_000)

    def test_a_kernel_takes_what_its_compiler_says(self):
        import triton
        import triton.language as tl

        @triton.jit
        def product(a, b, result, SIZE: tl.constexpr):
            rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
            x, y = tl.load(a + rows * SIZE + columns), tl.load(b + rows * SIZE + columns)
            tl.store(result + rows * SIZE + columns, tl.dot(x, y))

        x = torch.zeros(128, 128, device="cuda", dtype=torch.float16)
        kernel = product[(1,)](x, x, x, 128, num_warps=8)
        self.assertTrue(32 <= kernel.n_regs <= 255, kernel.n_regs)
        self.assertGreaterEqual(kernel.metadata.shared, 2 * 64 * 64)


def again():
    from torch._dynamo.utils import counters

    train()
    inductor = counters["inductor"]
    print(f"hits {inductor['fxgraph_cache_hit']}, misses {inductor['fxgraph_cache_miss']}")


if __name__ == "__main__":
    again() if sys.argv[1:] == ["again"] else unittest.main(verbosity=2)
