#!/usr/bin/env python3
"""Pools of memory of their own: torch.cuda.MemPool, allocators of users behind one, and the pools of captured graphs.

Usage: cuda_pools_test.py COMPILER [unittest's arguments]
"""

import ctypes
import gc
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
from cuda_support import ALLOCATOR, GIB, MIB, CudaCase, empty, runtime, stat

COMPILER = sys.argv.pop(1)
driver = ctypes.CDLL(None)

USERS_ALLOCATOR = """
#include <stddef.h>
extern int cudaMalloc(void**, size_t);
extern int cudaFree(void*);
int made, freed;
void (*call_back)(void);
size_t made_bytes, freed_bytes;
void* users_alloc(size_t size, int device, void* stream) {
  void* pointer = NULL;
  if (call_back) call_back();
  if (device != 0 || cudaMalloc(&pointer, size) != 0) return NULL;
  ++made;
  made_bytes += size;
  return pointer;
}
void users_free(void* pointer, size_t size, int device, void* stream) {
  ++freed;
  if (call_back) call_back();
  freed_bytes += size;
  cudaFree(pointer);
}
"""


def pool_of(tensor):
    """The id of the pool whose segment holds the tensor."""
    where = tensor.data_ptr()
    ids = [
        tuple(segment["segment_pool_id"])
        for segment in torch.cuda.memory_snapshot()
        if segment["address"] <= where < segment["address"] + segment["total_size"]
    ]
    assert len(ids) == 1, ids
    return ids[0]


def bytes_of(pool_id):
    return sum(
        segment["total_size"]
        for segment in torch.cuda.memory_snapshot()
        if tuple(segment["segment_pool_id"]) == tuple(pool_id)
    )


class MemPools(CudaCase):
    def test_a_pool_serves_what_is_asked_for_in_it(self):
        pool = torch.cuda.MemPool()
        before = empty(2 * MIB)
        self.assertEqual(pool.use_count(), 1)
        with torch.cuda.use_mem_pool(pool):
            self.assertEqual(pool.use_count(), 2)
            inside = [empty(1000), empty(2 * MIB)]
        self.assertEqual(pool.use_count(), 1)
        after = empty(2 * MIB)
        self.assertEqual([pool_of(tensor) for tensor in inside], [tuple(pool.id)] * 2)
        self.assertEqual([pool_of(tensor) for tensor in (before, after)], [(0, 0)] * 2)
        sizes = sorted(
            block["requested_size"]
            for segment in pool.snapshot()
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        )
        self.assertEqual(sizes, [1000, 2 * MIB])
        self.assertEqual({tuple(segment["segment_pool_id"]) for segment in pool.snapshot()}, {tuple(pool.id)})
        del inside, before, after

    def test_a_pool_reuses_its_memory_and_gives_it_to_nobody_else(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = empty(30 * MIB)
        del kept
        reserved = bytes_of(pool.id)
        self.assertGreaterEqual(reserved, 30 * MIB)
        outside = empty(30 * MIB)
        self.assertEqual(pool_of(outside), (0, 0))
        with torch.cuda.use_mem_pool(pool):
            again = empty(30 * MIB)
        self.assertEqual((pool_of(again), bytes_of(pool.id)), (tuple(pool.id), reserved))
        del again, outside

    def test_a_pool_that_goes_gives_its_memory_back(self):
        reserved = torch.cuda.memory_reserved()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = empty(30 * MIB)
        self.assertGreaterEqual(torch.cuda.memory_reserved() - reserved, 30 * MIB)
        del kept, pool
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), reserved)

    def test_a_pool_that_is_left_unsplit_has_a_block_a_segment(self):
        pools = {False: torch.cuda.MemPool(), True: torch.cuda.MemPool(no_split=True)}
        kept = []
        for _ in range(2):
            for pool in pools.values():
                with torch.cuda.use_mem_pool(pool):
                    kept.append(empty(4 * MIB))
        segments = pools[True].snapshot()
        self.assertEqual([len(segment["blocks"]) for segment in segments], [1, 1])
        self.assertGreater(len(segments), len(pools[False].snapshot()))
        where = {tensor.data_ptr() for tensor in kept}
        del kept[1]
        with torch.cuda.use_mem_pool(pools[True]):
            kept.append(empty(3 * MIB))  # all of a segment that came free
        self.assertIn(kept[-1].data_ptr(), where)
        self.assertEqual([len(segment["blocks"]) for segment in pools[True].snapshot()], [1, 1])
        kept.clear()

    def test_a_tensor_outlives_its_pool(self):
        reserved = torch.cuda.memory_reserved()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = empty(30 * MIB)
        where = kept.data_ptr()
        del pool
        torch.cuda.empty_cache()
        others = [empty(20 * MIB) for _ in range(4)]
        for other in others:
            self.assertFalse(where < other.data_ptr() + 20 * MIB and other.data_ptr() < where + 30 * MIB)
        del kept, others, other
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), reserved)

    def test_pools_nest_and_are_of_their_thread(self):
        outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
        self.assertNotEqual(tuple(outer.id), tuple(inner.id))
        seen = {}

        def other_thread():
            seen["thread"] = empty(MIB)

        with torch.cuda.use_mem_pool(outer):
            seen["outer"] = empty(MIB)
            with torch.cuda.use_mem_pool(inner):
                seen["inner"] = empty(MIB)
                thread = threading.Thread(target=other_thread)
                thread.start()
                thread.join()
            seen["again"] = empty(MIB)
        self.assertEqual(
            {name: pool_of(tensor) for name, tensor in seen.items()},
            {"outer": tuple(outer.id), "inner": tuple(inner.id), "again": tuple(outer.id), "thread": (0, 0)},
        )
        seen.clear()

    def test_emptying_the_cache_inside_a_pool_leaves_its_memory(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            empty(30 * MIB)
            reserved = bytes_of(pool.id)
            torch.cuda.empty_cache()
            self.assertEqual(bytes_of(pool.id), reserved)

    def test_threads_that_empty_the_cache_leave_each_others_pools(self):
        pools = [torch.cuda.MemPool() for _ in range(4)]

        def use(pool):
            with torch.cuda.use_mem_pool(pool):
                empty(100)
                torch.cuda.empty_cache()

        threads = [threading.Thread(target=use, args=(pool,)) for pool in pools]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for pool in pools:
            self.assertEqual(len(pool.snapshot()), 1)

    @unittest.skipUnless(ALLOCATOR == "berth", "PyTorch's allocator runs out (pytorch#159674)")
    def test_a_pool_gives_its_own_free_segments_back_before_it_runs_out(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            for size in (20, 25, 30, 45, 60, 70):
                empty(size * GIB)
            kept = empty(60 * GIB)
            with self.assertRaises(torch.OutOfMemoryError):
                empty(30 * GIB)
        self.assertEqual(pool_of(kept), tuple(pool.id))
        del kept

    @unittest.skipUnless(ALLOCATOR == "berth", "PyTorch's allocator never does")
    def test_a_pool_that_a_graph_uses_keeps_its_free_segments(self):
        pool, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool.id):
            torch.zeros(30 * GIB, dtype=torch.uint8, device="cuda")
            result = torch.zeros(1000, device="cuda")
        with torch.cuda.use_mem_pool(pool), self.assertRaises(torch.OutOfMemoryError):
            empty(60 * GIB)
        self.assertGreaterEqual(bytes_of(pool.id), 30 * GIB)
        graph.replay()
        torch.cuda.synchronize()
        del result

    def test_a_pool_may_be_used_when_all_else_is_out(self):
        kept = []
        pool = torch.cuda.MemPool(use_on_oom=True)
        private = torch.cuda.MemPool()
        for one in (pool, private):
            with torch.cuda.use_mem_pool(one):
                kept.append(empty(20 * GIB))
        rest = empty(30 * GIB)
        where = kept[0].data_ptr()
        kept.clear()
        with self.assertRaises(torch.OutOfMemoryError):
            empty(35 * GIB)
        borrowed = empty(18 * GIB)
        self.assertTrue(where <= borrowed.data_ptr() < where + 20 * GIB)
        with self.assertRaises(torch.OutOfMemoryError):
            empty(18 * GIB)  # the other pool is not for that
        del borrowed, rest


class UsersAllocator(CudaCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        source, cls.library = pathlib.Path(cls.folder.name) / "users.c", pathlib.Path(cls.folder.name) / "users.so"
        source.write_text(USERS_ALLOCATOR)
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", cls.library, source], check=True)
        cls.users = ctypes.CDLL(str(cls.library))

    def count(self, name, kind=ctypes.c_int):
        return kind.in_dll(self.users, name).value

    def test_a_pool_takes_its_memory_from_the_users_allocator(self):
        made, freed = self.count("made"), self.count("freed")
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(self.library), "users_alloc", "users_free")
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            kept = empty(3 * MIB)
            second = empty(100)
        self.assertEqual({pool_of(kept), pool_of(second)}, {tuple(pool.id)})
        self.assertGreater(self.count("made"), made)
        self.assertGreaterEqual(self.count("made_bytes", ctypes.c_size_t), 3 * MIB + 100)
        outside = self.count("made")
        empty(50 * MIB)
        self.assertEqual(self.count("made"), outside)
        self.assertEqual(self.count("freed"), freed)
        del kept, second, pool
        torch.cuda.empty_cache()
        self.assertEqual(self.count("freed") - freed, self.count("made") - made)
        self.assertEqual(self.count("freed_bytes", ctypes.c_size_t), self.count("made_bytes", ctypes.c_size_t))

    def test_a_tensor_outlives_the_users_allocator(self):
        freed = self.count("freed")
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(self.library), "users_alloc", "users_free")
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            kept = empty(100)
        del pool, allocator
        gc.collect()
        self.assertEqual(self.count("freed"), freed)
        del kept
        torch.cuda.empty_cache()
        self.assertEqual(self.count("made"), self.count("freed"))

    @unittest.skipUnless(ALLOCATOR == "berth", "PyTorch's allocator serves it from the same pool, again and again")
    def test_the_users_allocator_may_ask_for_memory_itself(self):
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(self.library), "users_alloc", "users_free")
        pool = torch.cuda.MemPool(allocator.allocator())
        seen = []

        def call_back():
            inner = empty(3 * MIB)
            seen.append((pool_of(inner), stat("reserved_bytes.all.current") > 0))

        reserved = torch.cuda.memory_reserved()
        called = ctypes.CFUNCTYPE(None)(call_back)
        variable = ctypes.c_void_p.in_dll(self.users, "call_back")
        variable.value = ctypes.cast(called, ctypes.c_void_p).value
        self.addCleanup(setattr, variable, "value", None)
        with torch.cuda.use_mem_pool(pool):
            kept = [empty(100), empty(30 * MIB)]
        self.assertEqual({pool_of(tensor) for tensor in kept}, {tuple(pool.id)})
        self.assertEqual(len(seen), 2)
        del kept, pool
        self.settle()
        self.assertEqual(seen, [((0, 0), True)] * 4)
        self.assertEqual(torch.cuda.memory_reserved(), reserved)

    def test_the_users_memory_counts_against_the_fraction(self):
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(self.library), "users_alloc", "users_free")
        private = torch.cuda.MemPool(allocator.allocator())
        lending = torch.cuda.MemPool(allocator.allocator(), use_on_oom=True)
        _, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 160 * MIB) / total)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        with torch.cuda.use_mem_pool(private):
            first = empty(80 * MIB)
        with torch.cuda.use_mem_pool(lending):
            second = empty(80 * MIB)
            with self.assertRaises(torch.OutOfMemoryError):
                empty(80 * MIB)
        with self.assertRaises(torch.OutOfMemoryError):
            empty(80 * MIB)
        del first, second
        borrowed = empty(60 * MIB)
        self.assertEqual(pool_of(borrowed), tuple(lending.id))
        with self.assertRaises(torch.OutOfMemoryError):
            empty(60 * MIB)  # the other pool is not for that
        del borrowed, private, lending
        gc.collect()
        torch.cuda.empty_cache()
        empty(150 * MIB)

    def test_pools_that_are_gone_lend_nothing(self):
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(self.library), "users_alloc", "users_free")
        _, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 80 * MIB) / total)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        for _ in range(5):
            pool = torch.cuda.MemPool(allocator.allocator(), use_on_oom=True)
            with torch.cuda.use_mem_pool(pool):
                empty(80 * MIB)
            identity = tuple(pool.id)
            del pool
        pool = torch.cuda.MemPool(allocator.allocator(), use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            empty(80 * MIB)
        borrowed = [empty(40 * MIB), empty(40 * MIB)]
        self.assertEqual({pool_of(tensor) for tensor in borrowed}, {tuple(pool.id)})
        self.assertNotEqual(tuple(pool.id), identity)


class Graphs(CudaCase):
    def capture(self, work, **options):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, **options):
            result = work()
        return graph, result

    def test_a_graphs_memory_is_nobody_elses_while_it_lives(self):
        def work():
            temporary = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
            return temporary + 1

        graph, result = self.capture(work)
        pool = graph.pool()
        self.assertEqual(pool_of(result), tuple(pool))
        del result
        others = [torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
        self.assertEqual({pool_of(other) for other in others}, {(0, 0)})
        torch.cuda.empty_cache()
        self.assertGreaterEqual(bytes_of(pool), 16 * MIB)
        graph.replay()
        torch.cuda.synchronize()
        del others
        graph.reset()
        self.settle()
        self.assertEqual(bytes_of(pool), 0)

    def test_a_graph_keeps_its_memory_where_others_run_out(self):
        def work():
            return torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")[:512] + 1

        graph, result = self.capture(work)
        held = bytes_of(graph.pool())
        self.assertGreaterEqual(held, 64 * MIB)
        with self.assertRaises(torch.OutOfMemoryError):
            empty(200 * GIB)
        torch.cuda.empty_cache()
        self.assertEqual(bytes_of(graph.pool()), held)
        graph.replay()
        torch.cuda.synchronize()
        del result

    def test_graphs_share_a_pool(self):
        def work():
            return (torch.zeros(16 * MIB, dtype=torch.uint8, device="cuda") + 1)[:512].clone()

        first, one = self.capture(work)
        reserved = bytes_of(first.pool())
        second, two = self.capture(work, pool=first.pool())
        self.assertEqual(tuple(first.pool()), tuple(second.pool()))
        self.assertLess(bytes_of(first.pool()), reserved + 16 * MIB)
        first.reset()
        self.settle()
        self.assertGreater(bytes_of(second.pool()), 0)
        second.replay()
        del one, two

    def test_running_out_in_a_capture_is_that_error_and_the_next_capture_works(self):
        with self.assertRaisesRegex(torch.OutOfMemoryError, "out of memory"):
            self.capture(lambda: empty(200 * GIB))
        graph, result = self.capture(lambda: torch.zeros(100, device="cuda"))
        graph.replay()
        del result

    @unittest.skipUnless(ALLOCATOR == "berth", "PyTorch's allocator keeps its pool, and empties no cache from then on")
    def test_a_void_capture_keeps_no_memory_of_any_pool(self):
        kept = torch.cuda.memory_reserved()

        def work():
            empty(40 * MIB)
            torch.cuda.synchronize()  # which no capture permits

        for _ in range(3):
            with self.assertRaisesRegex(RuntimeError, "captur"):
                self.capture(work)
        graph, _ = self.capture(lambda: torch.zeros(20 * MIB, dtype=torch.uint8, device="cuda"))
        self.assertGreaterEqual(bytes_of(graph.pool()), 20 * MIB)
        graph.replay()
        del graph, _
        empty(50 * MIB)
        self.settle()
        self.assertEqual(torch.cuda.memory_reserved(), kept)

    def test_a_capture_of_another_thread_goes_on_beside_void_ones(self):
        results, errors = [], []

        def capture_for_long():
            stream = torch.cuda.Stream()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    tensors = [empty(MIB)]
                    begun.set()
                    done.wait(60)
                    tensors.append(empty(MIB))
                results.append((tuple(graph.pool()), [pool_of(tensor) for tensor in tensors]))
            except Exception as error:  # of the thread, for the test
                errors.append(error)

        begun, done = threading.Event(), threading.Event()
        other = threading.Thread(target=capture_for_long)
        other.start()
        self.assertTrue(begun.wait(60))
        torch.cuda.empty_cache()
        empty(MIB)
        done.set()
        other.join()
        self.assertEqual(errors, [])
        ((pool, pools),) = results
        self.assertEqual(pools, [pool, pool])

    def test_recorded_memory_of_a_capture_comes_back_after_it(self):
        side = torch.cuda.Stream()

        def work():
            shared = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                result = shared + 1
            shared.record_stream(side)
            del shared
            torch.cuda.current_stream().wait_stream(side)
            return result

        graph, result = self.capture(work)
        graph.replay()
        self.settle()
        self.assertEqual(stat("active.all.current"), stat("allocation.all.current"))
        del result

    def test_memory_asked_for_outside_during_a_capture_is_no_graphs(self):
        seen = {}

        def other_thread():
            with torch.cuda.stream(torch.cuda.Stream()):
                seen["outside"] = empty(MIB)

        def work():
            thread = threading.Thread(target=other_thread)
            thread.start()
            thread.join()
            return torch.zeros(MIB, dtype=torch.uint8, device="cuda")

        graph, result = self.capture(work, capture_error_mode="thread_local")
        self.assertEqual((pool_of(seen["outside"]), pool_of(result)), ((0, 0), tuple(graph.pool())))
        del result, graph

    def test_the_state_of_a_pool_can_be_restored(self):
        graph, result = self.capture(
            lambda: [torch.zeros(size, dtype=torch.uint8, device="cuda") for size in (512, 4 * MIB)]
        )
        pool, device = graph.pool(), 0
        live = {tensor.data_ptr() for tensor in result}
        self.assertTrue(torch._C._cuda_checkPoolLiveAllocations(device, pool, live))
        self.assertFalse(torch._C._cuda_checkPoolLiveAllocations(device, pool, set()))
        state = torch._C._cuda_getCheckpointState(device, pool)
        second, more = self.capture(
            lambda: [torch.zeros(2 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)], pool=pool
        )
        self.assertTrue(
            torch._C._cuda_checkPoolLiveAllocations(device, pool, live | {tensor.data_ptr() for tensor in more})
        )
        stale = [tensor.untyped_storage()._cdata for tensor in more]
        torch._C._cuda_setCheckpointPoolState(device, state, stale, [])
        self.assertTrue(torch._C._cuda_checkPoolLiveAllocations(device, pool, live))
        del more
        third, again = self.capture(
            lambda: [torch.zeros(2 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)], pool=pool
        )
        for tensor in again:
            for other in result:
                self.assertTrue(
                    tensor.data_ptr() + 2 * MIB <= other.data_ptr()
                    or other.data_ptr() + other.numel() <= tensor.data_ptr()
                )
        del again, tensor, other, result

    def test_callables_become_graphs(self):
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        module = torch.nn.Linear(64, 64).cuda()
        x = torch.zeros(8, 64, device="cuda", requires_grad=True)
        graphed = torch.cuda.make_graphed_callables(module, (x,))
        for _ in range(3):
            graphed(x).sum().backward()
        torch.cuda.synchronize()
        del graphed


class OtherLibraries(CudaCase):
    """What NCCL, custom all-reduces and the like expect of the memory of graphs and of MemPools."""

    def capture(self, work):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = work()
        return graph, result

    def segments(self, identity):
        return [
            segment for segment in torch.cuda.memory_snapshot() if tuple(segment["segment_pool_id"]) == tuple(identity)
        ]

    def check_segments(self, identity):
        """Each is one allocation of the driver's, which other processes open by one handle."""
        segments = self.segments(identity)
        self.assertNotEqual(segments, [])
        for segment in segments:
            self.assertFalse(segment["is_expandable"])
            base, size = ctypes.c_void_p(), ctypes.c_size_t()
            inside = ctypes.c_void_p(segment["address"] + segment["total_size"] // 2)
            self.assertEqual(driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), inside), 0)
            self.assertEqual((base.value, size.value), (segment["address"], segment["total_size"]))
            self.assertEqual(driver.cudaIpcGetMemHandle(ctypes.create_string_buffer(64), inside), 0)

    def test_graphs_and_pools_have_segments_that_the_driver_knows_as_one(self):
        graph, result = self.capture(
            lambda: [torch.zeros(size, dtype=torch.uint8, device="cuda") for size in (100, 3 * MIB, 30 * MIB)]
        )
        self.check_segments(graph.pool())
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = [empty(100), empty(3 * MIB), empty(30 * MIB)]
        self.check_segments(pool.id)
        del result, kept

    def test_their_memory_is_told_as_allocated_and_freed(self):
        torch.cuda.memory._record_memory_history(context=None)
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = empty(30 * MIB)
        segments = {segment["address"]: segment["total_size"] for segment in self.segments(pool.id)}
        del kept, pool
        graph, result = self.capture(lambda: torch.zeros(40 * MIB, dtype=torch.uint8, device="cuda"))
        segments |= {segment["address"]: segment["total_size"] for segment in self.segments(graph.pool())}
        del graph, result
        self.settle()
        told = [
            entry
            for entry in torch.cuda.memory._snapshot()["device_traces"][0]
            if any(first <= entry["addr"] < first + size for first, size in segments.items())
            and entry["action"].startswith("segment")
        ]
        self.assertEqual({entry["action"] for entry in told}, {"segment_alloc", "segment_free"})
        for address, size in segments.items():
            mine = [(entry["action"], entry["size"]) for entry in told if entry["addr"] == address]
            self.assertEqual(mine, [("segment_alloc", size), ("segment_free", size)])

    def test_nccl_registers_a_pool_and_forgets_it_before_it_goes(self):
        with tempfile.TemporaryDirectory() as folder:
            distributed = torch.distributed
            distributed.init_process_group(
                "nccl", init_method=f"file://{folder}/meeting", rank=0, world_size=1, device_id=torch.device("cuda", 0)
            )
            self.addCleanup(distributed.destroy_process_group)
            backend = distributed.group.WORLD._get_backend(torch.device("cuda"))
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                first = empty(3 * MIB)
            backend.register_mem_pool(pool)
            before = runtime.berth_standin_calls(b"ncclCommRegister")
            self.assertEqual(before, len(self.segments(pool.id)))
            with torch.cuda.use_mem_pool(pool):
                second = empty(30 * MIB)  # registered as it comes
            self.assertEqual(runtime.berth_standin_calls(b"ncclCommRegister"), before + 1)
            distributed.all_reduce(second)
            torch.cuda.synchronize()
            del first, second, pool
            self.settle()  # what goes while it is registered is a violation
            self.assertEqual(runtime.berth_standin_calls(b"ncclCommDeregister"), before + 1)


if __name__ == "__main__":
    print("allocator:", ALLOCATOR, "stand-in:", runtime.berth_standin_version())
    unittest.main(verbosity=2)
