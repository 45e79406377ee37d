#!/usr/bin/env python3
"""Statistics, limits and errors of the CUDA allocator that torch has."""

import ctypes
import unittest

import torch
from cuda_support import ALLOCATOR, GIB, MIB, PLAIN, CudaCase, driver_bytes, empty, rounding, runtime, stat

TOTAL = torch.cuda.get_device_properties(0).total_memory


def refuse(call):
    """All calls of this function of the driver's fail from now on."""
    not_permitted = 800
    runtime.berth_standin_fail(call, ctypes.c_uint64(1), not_permitted, ctypes.c_uint64(1 << 40))


class Statistics(CudaCase):
    def changes(self, names, action):
        before = torch.cuda.memory_stats()
        kept = action()
        after = torch.cuda.memory_stats()
        return kept, {name: after[name] - before[name] for name in names}

    def test_counters_follow_requests_and_frees(self):
        names = [
            f"{what}.{pool}.{kind}"
            for what in ("allocation", "requested_bytes", "allocated_bytes", "active", "active_bytes")
            for pool in ("all", "small_pool", "large_pool")
            for kind in ("current", "allocated", "freed")
        ]
        kept, change = self.changes(names, lambda: [empty(1000), empty(3 * MIB), empty(0)])
        self.assertEqual(
            [change[f"allocation.{pool}.current"] for pool in ("all", "small_pool", "large_pool")], [2, 1, 1]
        )
        self.assertEqual(change["allocation.all.allocated"], 2)
        self.assertEqual(change["allocation.all.freed"], 0)
        self.assertEqual(change["requested_bytes.small_pool.current"], 1000)
        self.assertEqual(change["requested_bytes.large_pool.current"], 3 * MIB)
        self.assertEqual(change["allocated_bytes.small_pool.current"], 1024)
        self.assertEqual(change["allocated_bytes.all.current"], 3 * MIB + 1024)
        self.assertEqual(change["active.all.current"], 2)
        self.assertEqual(change["active_bytes.all.current"], change["allocated_bytes.all.current"])
        _, change = self.changes(names, kept.clear)
        self.assertEqual(change["allocation.all.current"], -2)
        self.assertEqual(change["allocation.all.freed"], 2)
        self.assertEqual(change["requested_bytes.all.current"], -1000 - 3 * MIB)
        self.assertEqual(change["requested_bytes.all.freed"], 1000 + 3 * MIB)
        self.assertEqual(change["allocated_bytes.all.freed"], 3 * MIB + 1024)
        self.assertEqual(change["active.all.current"], -2)

    def test_requested_bytes_are_what_was_asked_for_where_sizes_are_rounded(self):
        names = [
            "requested_bytes.all.current",
            "requested_bytes.all.freed",
            "requested_bytes.large_pool.current",
            "allocated_bytes.all.current",
        ]
        asked = 3 * MIB + 5000
        rounded = 3 * MIB + MIB // 2
        with rounding(4):
            kept, change = self.changes(names, lambda: [empty(asked)])
            self.assertEqual(list(change.values()), [asked, 0, asked, rounded])
            _, change = self.changes(names, kept.clear)
            self.assertEqual(list(change.values()), [-asked, asked, -asked, -rounded])

    def test_the_largest_block_that_is_split_is_the_settings(self):
        self.assertEqual(torch.cuda.memory_stats()["max_split_size"], -1)  # none, as PyTorch says it

    def test_small_and_large_add_up_to_all(self):
        kept = [empty(size) for size in (1, 512, MIB, MIB + 1, 5 * MIB, 30 * MIB)]
        del kept[::2]
        stats = torch.cuda.memory_stats()
        for name, value in stats.items():
            if ".all." in name and not name.endswith(".peak"):
                self.assertEqual(
                    value,
                    stats[name.replace(".all.", ".small_pool.")] + stats[name.replace(".all.", ".large_pool.")],
                    name,
                )

    def test_the_short_names_are_the_long_ones(self):
        kept = empty(5 * MIB)
        stats = torch.cuda.memory_stats()
        self.assertEqual(torch.cuda.memory_allocated(), stats["allocated_bytes.all.current"])
        self.assertEqual(torch.cuda.memory_reserved(), stats["reserved_bytes.all.current"])
        self.assertEqual(torch.cuda.max_memory_allocated(), stats["allocated_bytes.all.peak"])
        self.assertEqual(torch.cuda.max_memory_reserved(), stats["reserved_bytes.all.peak"])
        self.assertEqual(torch.accelerator.memory_allocated(), stats["allocated_bytes.all.current"])
        self.assertEqual(torch.accelerator.memory_reserved(), stats["reserved_bytes.all.current"])
        self.assertEqual(torch.accelerator.max_memory_allocated(), stats["allocated_bytes.all.peak"])
        self.assertIn("Allocated memory", torch.cuda.memory_summary())
        del kept

    def test_a_peak_is_the_most_since_its_reset(self):
        base = torch.cuda.memory_allocated()
        kept = empty(8 * MIB)
        del kept
        self.assertEqual(stat("allocated_bytes.all.peak"), base + 8 * MIB)
        self.assertEqual(stat("requested_bytes.all.peak") - stat("requested_bytes.all.current"), 8 * MIB)
        torch.cuda.reset_peak_memory_stats()
        self.assertEqual(stat("allocated_bytes.all.peak"), base)
        kept = [empty(2 * MIB) for _ in range(3)]
        del kept[1:]
        self.assertEqual(stat("allocated_bytes.all.peak"), base + 6 * MIB)
        self.assertEqual(stat("allocation.all.peak"), stat("allocation.all.current") + 2)
        torch.accelerator.reset_peak_memory_stats()
        self.assertEqual(stat("allocated_bytes.all.peak"), base + 2 * MIB)

    def test_sums_start_again_at_their_reset(self):
        kept = [empty(2 * MIB), empty(100)]
        torch.cuda.reset_accumulated_memory_stats()
        self.assertEqual((stat("allocation.all.allocated"), stat("allocation.all.freed")), (0, 0))
        self.assertEqual(stat("num_ooms"), 0)
        kept.pop()
        self.assertEqual((stat("allocation.all.allocated"), stat("allocation.all.freed")), (0, 1))
        self.assertEqual(stat("requested_bytes.all.freed"), 100)

    def test_reserved_is_what_the_driver_gave(self):
        used, reserved = driver_bytes(), torch.cuda.memory_reserved()
        kept = [empty(100 * MIB), empty(1000)]
        self.assertEqual(driver_bytes() - used, torch.cuda.memory_reserved() - reserved)
        self.assertGreaterEqual(torch.cuda.memory_reserved() - reserved, 100 * MIB)
        kept.clear()
        torch.cuda.empty_cache()
        self.assertEqual((driver_bytes(), torch.cuda.memory_reserved()), (used, reserved))

    def test_freed_memory_is_kept_until_the_cache_is_emptied(self):
        kept = empty(64 * MIB)
        used = driver_bytes()
        del kept
        self.assertEqual(driver_bytes(), used)
        kept = empty(64 * MIB)
        self.assertEqual(driver_bytes(), used)
        del kept

    def test_without_caching_memory_goes_back_at_once(self):
        used = driver_bytes()
        torch.cuda.caching_allocator_enable(False)
        try:
            kept = empty(10 * MIB)
            self.assertGreaterEqual(driver_bytes() - used, 10 * MIB)
            del kept
            self.assertEqual(driver_bytes(), used)
        finally:
            torch.cuda.caching_allocator_enable(True)

    @unittest.skipUnless(ALLOCATOR == "berth", "PyTorch's own words are others")
    def test_a_driver_that_refuses_is_told_as_that(self):
        pool = torch.cuda.MemPool()

        def in_pool():
            with torch.cuda.use_mem_pool(pool):
                empty(64 * MIB)

        def uncached():
            torch.cuda.caching_allocator_enable(False)
            try:
                empty(64 * MIB)
            finally:
                torch.cuda.caching_allocator_enable(True)

        for call, work in (
            (b"cudaMalloc", in_pool),
            (b"cudaMalloc", uncached),
            (b"cudaMalloc" if PLAIN else b"cuMemCreate", lambda: empty(640 * MIB)),
        ):
            with self.subTest(call=call, work=work.__name__):
                refuse(call)
                try:
                    with self.assertRaises(RuntimeError) as caught:
                        work()
                finally:
                    runtime.berth_standin_clear_faults()
                self.assertNotIsInstance(caught.exception, torch.OutOfMemoryError)
                self.assertRegex(
                    str(caught.exception),
                    call.decode() + r" failed on cuda:0: operation not permitted \(cudaErrorNotPermitted, 800\)",
                )
                work()

    def test_memory_can_be_asked_for_without_a_tensor(self):
        allocated = torch.cuda.memory_allocated()
        pointer = torch.cuda.caching_allocator_alloc(1000)
        side = torch.cuda.caching_allocator_alloc(2000, 0, torch.cuda.Stream())
        self.assertNotEqual(pointer, side)
        self.assertEqual(torch.cuda.memory_allocated() - allocated, 1024 + 2048)
        for one in (pointer, side):
            self.assertEqual(one % 512, 0)
            torch.cuda.caching_allocator_delete(one)
        self.assertEqual(torch.cuda.memory_allocated(), allocated)
        with self.assertRaisesRegex(RuntimeError, "invalid device pointer"):
            torch.cuda.caching_allocator_delete(0x1234)


class Limits(CudaCase):
    def test_running_out_is_pytorchs_error_and_leaves_all_usable(self):
        ooms = stat("num_ooms")
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            empty(200 * GIB)
        self.assertRegex(
            str(caught.exception),
            r"^CUDA out of memory\. Tried to allocate 200\.00 GiB\. GPU 0 has a total capacity of 79\.",
        )
        self.assertIsInstance(caught.exception, RuntimeError)
        self.assertIs(torch.cuda.OutOfMemoryError, torch.OutOfMemoryError)
        self.assertEqual(stat("num_ooms") - ooms, 1)
        with self.assertRaisesRegex(torch.OutOfMemoryError, "Tried to allocate more than 1EB memory"):
            torch.empty(8_000_000_000 * GIB, dtype=torch.int8, device="cuda")
        self.assertEqual(empty(5 * MIB).numel(), 5 * MIB)

    def test_cached_memory_is_given_up_before_running_out(self):
        kept = empty(50 * GIB)
        del kept
        kept = empty(60 * GIB)
        with self.assertRaises(torch.OutOfMemoryError):
            empty(60 * GIB)
        del kept
        kept = [empty(7 * GIB) for _ in range(10)]
        del kept

    def test_no_more_than_a_fraction_is_had(self):
        self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 1.0)
        torch.cuda.set_per_process_memory_fraction(0.5)
        self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 0.5)
        with self.assertRaisesRegex(torch.OutOfMemoryError, "allowed"):
            empty(TOTAL // 2 + MIB)
        kept = empty(TOTAL // 2 - 100 * MIB)
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            empty(200 * MIB)
        self.assertRegex(str(caught.exception), r"of which 3\d\.\d\d GiB is free")  # on the device
        if ALLOCATOR == "berth":
            self.assertRegex(
                str(caught.exception),
                r"under the limit of 39\.\d GiB \(BERTH_MEMORY_LIMIT, or a memory fraction\): asked 200\.0 MiB"
                r".* \d+\.\d MiB left of the limit",
            )
        del kept
        torch.cuda.set_per_process_memory_fraction(1.0)
        kept = empty(TOTAL // 2 + MIB)
        for wrong in (-0.1, 1.1):
            with self.assertRaises(ValueError):
                torch.cuda.set_per_process_memory_fraction(wrong)
        del kept

    def test_what_others_take_is_not_there(self):
        runtime.berth_standin_take_elsewhere(0, ctypes.c_size_t(70 * GIB))
        try:
            free, total = torch.cuda.mem_get_info()
            self.assertEqual(total, TOTAL)
            self.assertLess(free, 10 * GIB)
            with self.assertRaises(torch.OutOfMemoryError):
                empty(20 * GIB)
        finally:
            runtime.berth_standin_take_elsewhere(0, ctypes.c_size_t(0))
        self.assertEqual(empty(20 * GIB).numel(), 20 * GIB)

    def test_an_observer_hears_of_running_out(self):
        heard = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *told: heard.append(told))
        with self.assertRaises(torch.OutOfMemoryError):
            empty(300 * GIB)
        self.assertEqual(len(heard), 1)
        device, asked, total, free = heard[0]
        self.assertEqual((device, asked, total), (0, 300 * GIB, TOTAL))
        self.assertLessEqual(free, TOTAL)


if __name__ == "__main__":
    print("allocator:", ALLOCATOR)
    unittest.main(verbosity=2)
