#!/usr/bin/env python3
"""What programs ask of cuFFT, cuSOLVER, cuSPARSE, cuSPARSELt and nvrtc, on the stand-in. Runs under its launcher.

Nothing is computed, so the cases look at what was called, at shapes, and at the workspaces, which must be plausible.
"""

import ctypes
import unittest
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

MIB = 1 << 20
runtime = ctypes.CDLL(None)
runtime.berth_standin_calls.restype = ctypes.c_uint64
runtime.berth_standin_violations.restype = ctypes.c_size_t


def calls(name):
    return runtime.berth_standin_calls(name.encode())


def zeros(*shape, **options):
    return torch.zeros(*shape, device="cuda", **options)


class Libraries(unittest.TestCase):
    def setUp(self):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def tearDown(self):
        torch.cuda.synchronize()
        self.assertEqual(runtime.berth_standin_violations(), 0)
        self.assertLess(torch.cuda.max_memory_allocated(), 200 * MIB)

    def assert_calls(self, name, function):
        before = calls(name)
        result = function()
        self.assertGreater(calls(name), before, name)
        return result

    def test_fourier_transforms_mix_tokens(self):
        x = zeros(4, 128, 256, requires_grad=True)
        self.assert_calls("cufftXtExec", lambda: torch.fft.fft2(x).real.sum().backward())
        held = torch.cuda.memory_allocated()
        y = torch.fft.rfft(zeros(64, 4096))
        self.assertEqual(y.shape, (64, 2049))
        self.assertGreater(torch.cuda.max_memory_allocated() - held, y.nbytes + 64 * 4096 * 4)
        window = zeros(400)
        self.assertEqual(torch.stft(zeros(2, 16000), 400, 160, window=window, return_complex=True).shape, (2, 201, 101))

    def test_matrices_are_factorised(self):
        # The signs of a determinant are read back from the pivots by a kernel.
        for shape in ((48, 48), (600, 600), (4, 32, 32)):
            for dtype in (torch.float32, torch.float64, torch.complex64):
                x = zeros(*shape, dtype=dtype)
                q, r = torch.linalg.qr(x)
                u, s, v = torch.linalg.svd(x)
                values, vectors = torch.linalg.eigh(x)
                self.assertEqual((q.shape, r.shape, u.shape, v.shape, vectors.shape), (x.shape,) * 5)
                self.assertEqual((s.shape, values.shape), (x.shape[:-1],) * 2)
                self.assertEqual(torch.linalg.cholesky(x).shape, x.shape)
                self.assertEqual(torch.linalg.solve(x, zeros(*shape, dtype=dtype)).shape, x.shape)
                self.assertEqual(torch.linalg.inv(x).shape, x.shape)
                self.assertEqual(torch.linalg.det(x).shape, x.shape[:-2])
        self.assertGreater(calls("cusolverDnXsyevd"), 0)
        nn.init.orthogonal_(zeros(64, 32))
        layer = nn.utils.parametrizations.orthogonal(nn.Linear(32, 32)).cuda()
        layer(zeros(4, 32)).sum().backward()

    def test_operators_that_are_compiled_when_first_used(self):
        x = zeros(100)
        for name in ("i1", "bessel_j0", "ndtri", "entr", "gammaln", "erfcx"):
            self.assert_calls("nvrtcCompileProgram", lambda: getattr(torch.special, name)(x))
        kernels = calls("cuLaunchKernel")
        product = torch.cuda.jiterator._create_jit_fn("template <typename T> T product(T x, T y) { return x * y; }")
        self.assertEqual(product(x, x).shape, x.shape)
        self.assertGreater(calls("cuLaunchKernel"), kernels)

    def test_sparse_gradients_and_products(self):
        warnings.simplefilter("ignore")  # of checks that are off
        embedding = nn.Embedding(1000, 64, sparse=True).cuda()
        optimizer = torch.optim.SGD(embedding.parameters(), 0.1)
        embedding(zeros(8, dtype=torch.long)).sum().backward()
        self.assertTrue(embedding.weight.grad.is_sparse)
        optimizer.step()
        neighbours = (
            torch.sparse_coo_tensor(torch.randint(0, 100, (2, 500)), torch.ones(500), (100, 100)).coalesce().cuda()
        )
        layer = nn.Linear(16, 16).cuda()
        self.assert_calls("cusparseSpMM", lambda: torch.sparse.mm(neighbours, layer(zeros(100, 16))).sum().backward())
        rows = neighbours.cpu().to_sparse_csr().cuda()
        self.assertEqual((rows @ zeros(100, 4)).shape, (100, 4))
        self.assertEqual((rows @ rows).shape, (100, 100))

    def test_products_of_eight_bits_and_of_half_the_elements(self):
        a, b, scale = (
            zeros(64, 32).to(torch.float8_e4m3fn),
            zeros(48, 32).to(torch.float8_e4m3fn).t(),
            torch.tensor(1.0).cuda(),
        )
        self.assertEqual(torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16).shape, (64, 48))
        self.assertEqual(
            torch._int_mm(zeros(32, 64, dtype=torch.int8), zeros(64, 32, dtype=torch.int8)).shape, (32, 32)
        )
        warnings.simplefilter("ignore")  # the interface may change
        weight = torch.tensor([0.0, 0.0, 1.0, 1.0]).tile((128, 32)).half().cuda()
        half = torch.sparse.to_sparse_semi_structured(weight)
        self.assertEqual(F.linear(zeros(128, 128, dtype=torch.half), half).shape, (128, 128))


if __name__ == "__main__":
    unittest.main(verbosity=2)
