#!/usr/bin/env python3
"""2,000 graphs captured and dropped, and 1,000 MemPools kept, on each of the GPUs of one process.

On the stand-in with several GPUs. Pools must not use up the addresses of the process, 2^47 bytes, nor slow each other down.
"""

import resource
import time
import unittest

import torch
from cuda_support import MIB, CudaCase

DROPPED, KEPT = 2000, 1000
HOST_BYTES_A_POOL = 128 << 10
SECONDS_A_GPU = 30


class ManyPools(CudaCase):
    def drop(self, x):
        for _ in range(DROPPED):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                y = x + 1
            graph.replay()
            del graph, y

    def keep(self):
        kept = []
        for _ in range(KEPT):
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                kept.append((pool, torch.empty(1000, device="cuda")))
        return kept

    def test_on_each_gpu(self):
        kept = []
        for device in range(torch.cuda.device_count()):
            torch.cuda.set_device(device)
            x = torch.zeros(100, device="cuda")
            self.settle()
            reserved, began = torch.cuda.memory_reserved(), time.monotonic()
            self.drop(x)
            self.settle()
            self.assertEqual(torch.cuda.memory_reserved(), reserved)
            host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            kept.append(self.keep())
            self.assertEqual(torch.cuda.memory_reserved() - reserved, KEPT * 2 * MIB)
            self.assertLess((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - host, KEPT * HOST_BYTES_A_POOL)
            self.assertLess(time.monotonic() - began, SECONDS_A_GPU)
            del x
        addresses = {tensor.data_ptr() for pools in kept for _, tensor in pools}
        self.assertEqual(len(addresses), KEPT * torch.cuda.device_count())
        kept.clear()
        self.settle()
        torch.cuda.set_device(0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
