#!/usr/bin/env python3
"""At every step of a program the history, the snapshot, the statistics and the driver tell of the same memory, and of none at its end."""

import gc
import itertools
import pathlib
import random
import sys
import time
import unittest

import torch
from cuda_accounts import Accounts
from cuda_berth import berth_stats, mark_step
from cuda_support import ALLOCATOR, GIB, LAZY, MIB, PLAIN, RANDOM, CudaCase, empty, runtime, use

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "bench/tools"
sys.path += [str(TOOLS / children) for children in ("changing_children", "gpu_children", "network_children")]
import programs  # noqa: E402

IS_BERTH = ALLOCATOR == "berth"


def end_step():
    if IS_BERTH:
        mark_step()


class Account(CudaCase):
    def setUp(self):
        super().setUp()
        self.accounts = Accounts()

    def tearDown(self):
        runtime.berth_standin_set_pace(self.pace)
        self.settle()
        self.settle()  # what a pool or a graph had is the driver's once its last block is gone
        self.accounts.check_empty()
        self.assertGreater(self.accounts.checks, 5)
        super().tearDown()

    def check(self):
        return self.accounts.check()

    @staticmethod
    def settle():
        torch._C._cuda_clearCublasWorkspaces()
        CudaCase.settle()


class Programs(Account):
    def test_blocks_of_which_some_stay(self):
        kept = empty(512 * MIB)
        self.check()
        del kept
        self.settle()
        self.check()
        for _ in range(5):
            blocks = [empty((100 + 7 * k) * MIB) for k in range(6)]
            self.check()
            kept = blocks[3]
            del blocks
            self.settle()
            self.assertEqual(len(self.check()), 1)
            del kept

    def test_random_requests(self):
        chance = random.Random(7)
        blocks = []
        for step in range(600):
            if chance.random() < 0.55:
                blocks.append(empty(int(2 ** chance.uniform(9, 28))))
            elif blocks:
                blocks.pop(chance.randrange(len(blocks)))
            if step % 150 == 149:
                torch.cuda.empty_cache()
            if step % 10 == 0:
                self.check()
        self.check()

    def test_a_model_that_trains(self):
        layers = [torch.nn.Linear(2048, 2048) for _ in range(6)]
        model = torch.nn.Sequential(*layers).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(30):
            rows = 512 if step % 5 else 1024
            model(torch.ones(rows, 2048, device="cuda")).sum().backward()
            self.check()
            optimizer.step()
            optimizer.zero_grad()
            end_step()
            time.sleep(0.005)
            self.check()
            if step == 20:
                torch.cuda.empty_cache()
                self.check()
        del layers, model, optimizer

    def test_steps_of_two_kinds_with_large_blocks(self):
        weights = [empty(90 * MIB) for _ in range(4)]
        for step in range(60):
            sizes = [5, 33, 120, 64, 7] if step % 4 else [250, 3, 40]
            blocks = [empty(size * MIB + 512) for size in sizes]
            self.check()
            del blocks[1]
            blocks.append(empty(300 * MIB))
            del blocks[0]
            self.check()
            del blocks
            end_step()
            time.sleep(0.002)
        del weights

    def test_little_more_than_what_lives(self):
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(1.05 * GIB / total)
        chance = random.Random(3)
        refused = 0
        for round_ in range(25):
            blocks, live = [], 0
            while live < GIB * 0.97:
                size = int(2 ** chance.uniform(18, 27.5))
                if live + size > GIB:
                    break
                try:
                    blocks.append(empty(size))
                    live += size
                except torch.OutOfMemoryError:
                    refused += 1
                    self.check()
                    break
                if len(blocks) > 3 and chance.random() < 0.35:
                    live -= blocks.pop(chance.randrange(len(blocks))).numel()
            self.check()
            del blocks
            end_step()
            self.check()

    def test_running_out(self):
        kept = [empty(30 * GIB)]
        self.check()
        with self.assertRaises(torch.OutOfMemoryError):
            empty(70 * GIB)
        self.check()
        kept.append(empty(40 * GIB))
        self.check()
        del kept[0]
        kept.append(empty(35 * GIB))
        for _ in range(3):
            self.check()

    def test_streams_that_use_each_others_blocks(self):
        for pace in (LAZY, RANDOM):
            runtime.berth_standin_set_pace(pace)
            streams = [torch.cuda.Stream() for _ in range(3)]
            for step in range(20):
                blocks = []
                for stream in streams:
                    with torch.cuda.stream(stream):
                        blocks.append(empty((11 + 3 * step % 7) * MIB))
                        use(blocks[-1], stream)
                for block in blocks:
                    if ALLOCATOR == "berth" or pace == LAZY:
                        streams[step % 3].wait_stream(torch.cuda.current_stream())
                    block.record_stream(torch.cuda.current_stream())
                self.check()
                del blocks, block
                self.check()
                end_step()
                if step == 12:
                    torch.cuda.empty_cache()
                    self.check()

    def test_graphs_and_pools(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = [empty(20 * MIB), empty(1000)]
        self.check()
        outside = empty(48 * MIB)
        graphs = []
        for size in (3, 40):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = torch.zeros(size * MIB, dtype=torch.uint8, device="cuda") + 1
            graphs.append((graph, result))
            self.check()
        for graph, _ in graphs:
            graph.replay()
        torch.cuda.synchronize()
        self.check()
        del inside, outside
        torch.cuda.empty_cache()
        self.check()
        del graph, result, graphs, pool
        self.settle()
        self.check()


class Bench(Account):
    """The programs of bench/changing, in their small form."""

    STEPS = 30

    def test_each_step_of_each_program(self):
        for name, (function, _, needs, _) in sorted(programs.PROGRAMS.items()):
            if needs is not None:
                continue
            with self.subTest(program=name):
                torch.manual_seed(1)
                run = function("small")
                for _ in itertools.islice(run, self.STEPS):
                    self.check()
                run.close()
                del run
                for _ in range(3):  # cycles of modules and their hooks go one after another
                    gc.collect()
                    self.settle()
                self.accounts.check_empty()


@unittest.skipUnless(
    IS_BERTH and not PLAIN, "the native allocator stitches no blocks, and plain memory has one address"
)
class Stitched(Account):
    def test_blocks_of_pieces_are_where_they_live(self):
        before = berth_stats()["stitched"]
        for round_ in range(6):
            blocks = [empty((20 + round_) * MIB) for _ in range(12)]
            kept = blocks[::2]
            del blocks
            large = [empty(70 * MIB), empty(31 * MIB + 512)]
            self.check()
            del large[round_ % 2]
            self.check()
            large.append(empty(50 * MIB))
            self.check()
            if round_ == 3:
                torch.cuda.empty_cache()
                self.check()
            del kept
            self.check()
            del large
            self.check()
        self.assertGreater(berth_stats()["stitched"], before)
        self.assertGreater(self.accounts.moves, 0)


if __name__ == "__main__":
    print("allocator:", ALLOCATOR)
    unittest.main(verbosity=2)
