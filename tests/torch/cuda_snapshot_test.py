#!/usr/bin/env python3
"""What snapshots, the history of memory and those who listen are told."""

import pickle
import tempfile
import threading
import time
import unittest
import unittest.mock

import torch
import torch.cuda._gpu_trace as gpu_trace
import torch.cuda._memory_viz as viz
from cuda_support import ALLOCATOR, GIB, MIB, CudaCase, empty, rounding, stat

STATES = {"active_allocated", "active_pending_free", "inactive"}
NO_NETWORK = (lambda flamegraph_lines, flamegraph_script=None: flamegraph_lines).__code__


def allocate_here(size):
    return empty(size)


def free_here(box):
    box.clear()


def history(**options):
    torch.cuda.memory._record_memory_history(**{"context": "all", "stacks": "python", "clear_history": True, **options})


def trace():
    return torch.cuda.memory._snapshot()["device_traces"][0]


def blocks():
    return [block for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]]


def blocks_at(address):
    return [block for block in blocks() if block["address"] == address]


class Segments(CudaCase):
    def test_blocks_tile_their_segment_and_add_up(self):
        kept = [empty(size) for size in (1, 1000, 600_000, MIB, 3 * MIB, 11 * MIB, 50 * MIB)]
        del kept[1::2]
        segments = torch.cuda.memory_snapshot()
        for segment in segments:
            end = segment["address"]
            sums = dict.fromkeys(STATES, 0)
            requested = 0
            for block in segment["blocks"]:
                self.assertEqual(block["address"], end)
                self.assertGreater(block["size"], 0)
                sums[block["state"]] += block["size"]
                end += block["size"]
                requested += block["requested_size"] if block["state"] != "inactive" else 0
            self.assertEqual(end, segment["address"] + segment["total_size"])
            self.assertEqual(set(sums), STATES)
            self.assertEqual(segment["allocated_size"], sums["active_allocated"])
            self.assertEqual(segment["active_size"], sums["active_allocated"] + sums["active_pending_free"])
            self.assertEqual(segment["requested_size"], requested)
            self.assertEqual((segment["device"], tuple(segment["segment_pool_id"])), (0, (0, 0)))
            self.assertIn(segment["segment_type"], ("small", "large"))
        self.assertEqual(sum(segment["total_size"] for segment in segments), torch.cuda.memory_reserved())
        self.assertEqual(sum(segment["allocated_size"] for segment in segments), torch.cuda.memory_allocated())
        self.assertEqual(sum(segment["requested_size"] for segment in segments), stat("requested_bytes.all.current"))

    def test_a_tensor_is_a_block_with_the_size_that_was_asked_for(self):
        kept = empty(1234)
        (block,) = blocks_at(kept.data_ptr())
        self.assertEqual((block["requested_size"], block["state"]), (1234, "active_allocated"))
        self.assertGreaterEqual(block["size"], 1234)

    def test_a_freed_block_keeps_the_size_that_was_asked_for(self):
        for divisions, size in ((1, 3 * MIB + 1234), (4, 6 * MIB)):  # of a power of two: nothing is rounded
            with rounding(divisions):
                kept = empty(size)
                where = kept.data_ptr()
                del kept
            (freed,) = [block for block in blocks() if block["address"] <= where < block["address"] + block["size"]]
            self.assertEqual((freed["requested_size"], freed["state"]), (size, "inactive"))

    def test_snapshots_and_history_say_what_was_asked_for_where_sizes_are_rounded(self):
        history()
        with rounding(4):
            kept = empty(3 * MIB + 5000)
            (block,) = blocks_at(kept.data_ptr())
            where = kept.data_ptr()
            del kept
        self.assertEqual((block["requested_size"], block["size"]), (3 * MIB + 5000, 3 * MIB + MIB // 2))
        self.assertEqual(
            [entry["size"] for entry in trace() if entry["addr"] == where and "segment" not in entry["action"]],
            [3 * MIB + 5000] * 3,
        )

    def test_a_block_that_waits_for_a_stream_is_pending(self):
        side = torch.cuda.Stream()
        shared = empty(4 * MIB)
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)
        shared.record_stream(side)
        where = shared.data_ptr()
        del shared
        (block,) = blocks_at(where)
        self.assertEqual(block["state"], "active_pending_free")
        side.synchronize()
        torch.cuda.empty_cache()
        self.assertNotIn("active_pending_free", [block["state"] for block in blocks_at(where)])

    def test_a_snapshot_names_the_settings(self):
        snapshot = torch.cuda.memory._snapshot()
        self.assertEqual(
            set(snapshot) & {"segments", "device_traces", "allocator_settings", "external_annotations"},
            {"segments", "device_traces", "allocator_settings", "external_annotations"},
        )
        self.assertIn("expandable_segments", snapshot["allocator_settings"])
        self.assertEqual(len(snapshot["device_traces"]), torch.cuda.device_count())


class History(CudaCase):
    def test_a_life_is_three_entries(self):
        history()
        before = time.time() * 1e6
        kept = empty(12_345)
        where = kept.data_ptr()
        del kept
        entries = [entry for entry in trace() if entry["addr"] == where and not entry["action"].startswith("segment")]
        self.assertEqual([entry["action"] for entry in entries], ["alloc", "free_requested", "free_completed"])
        self.assertEqual({entry["size"] for entry in entries}, {12_345})
        self.assertEqual({entry["stream"] for entry in entries}, {0})
        times = [entry["time_us"] for entry in entries]
        self.assertEqual(times, sorted(times))
        self.assertLess(abs(times[0] - before), 2e6)
        self.assertEqual(entries[0]["compile_context"], "N/A")

    def test_growth_and_return_are_entries(self):
        history()
        kept = empty(100 * MIB)
        del kept
        torch.cuda.empty_cache()
        entries = trace()
        came = sum(entry["size"] for entry in entries if entry["action"] in ("segment_alloc", "segment_map"))
        went = sum(entry["size"] for entry in entries if entry["action"] in ("segment_free", "segment_unmap"))
        self.assertGreaterEqual(came, 100 * MIB)
        self.assertEqual(went, came)
        self.assertIn(entries[-1]["action"], ("segment_free", "segment_unmap"))
        self.assertEqual(trace()[-1]["action"], "snapshot")  # of the one before

    def test_running_out_is_an_entry(self):
        history()
        with self.assertRaises(torch.OutOfMemoryError):
            empty(200 * GIB)
        (entry,) = (entry for entry in trace() if entry["action"] == "oom")
        self.assertEqual(entry["size"], 200 * GIB)
        self.assertLess(entry["device_free"], 80 * GIB)

    def test_running_out_waits_for_nobody_who_asks_meanwhile(self):
        # A context takes Python's lock, which the other thread has while it asks for the counters.
        history(context="all")
        over = threading.Event()

        def ask():
            while not over.is_set():
                torch.cuda.memory_allocated()

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        for _ in range(300):
            with self.assertRaises(torch.OutOfMemoryError):
                empty(200 * GIB)
        over.set()
        asking.join(20)
        self.assertFalse(asking.is_alive())
        self.assertTrue([entry for entry in trace() if entry["action"] == "oom"][-1]["frames"])

    def test_the_stream_of_an_entry_is_its_handle(self):
        history()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            kept = empty(5000)
        (entry,) = (entry for entry in trace() if entry["action"] == "alloc")
        self.assertEqual(entry["stream"], side.cuda_stream)
        del kept

    def test_contexts_are_taken_as_asked(self):
        # The function that is named where a block was made, in the entry of that, and in that of its free.
        for context, of_blocks, of_entries, of_frees in (
            (None, "", "", ""),
            ("state", "allocate_here", "", ""),
            ("alloc", *["allocate_here"] * 3),
            ("all", "allocate_here", "allocate_here", "free_here"),
        ):
            with self.subTest(context=context):
                history(context=context)
                kept = allocate_here(6000)
                (block,) = blocks_at(kept.data_ptr())
                box = [kept]
                del kept
                free_here(box)
                entries = {entry["action"]: entry for entry in trace() if entry["size"] == 6000}
                for one, named in (
                    (block, of_blocks),
                    (entries["alloc"], of_entries),
                    (entries["free_requested"], of_frees),
                ):
                    names = [frame["name"] for frame in one.get("frames", [])]
                    self.assertEqual([name for name in names if name.endswith("_here")], [named] if named else [])

    def test_the_latest_entries_are_kept(self):
        history(max_entries=10)
        for size in range(1000, 1100):
            empty(size)
        entries = trace()
        self.assertEqual(len(entries), 10)
        self.assertEqual(entries[-1]["size"], 1099)

    def test_what_is_skipped_is_no_entry(self):
        history(skip_actions=["free_requested", "free_completed"])
        empty(7000)
        self.assertEqual({entry["action"] for entry in trace() if entry["size"] == 7000}, {"alloc"})

    def test_no_history_has_no_entries(self):
        history()
        empty(100)
        torch.cuda.memory._record_memory_history(None)
        empty(100)
        self.assertEqual(trace(), [])

    def test_metadata_is_on_the_entries_of_its_time(self):
        history()
        torch.cuda.memory._set_memory_metadata("layer 3")
        self.assertEqual(torch.cuda.memory._get_memory_metadata(), "layer 3")
        empty(8000)
        torch.cuda.memory._set_memory_metadata("")
        empty(9000)
        told = {entry["size"]: entry.get("user_metadata") for entry in trace() if entry["action"] == "alloc"}
        self.assertEqual((told[8000], told[9000]), ("layer 3", ""))

    def test_ranges_are_annotations(self):
        history(global_record_annotations=True)
        with torch.autograd.profiler.record_function("forward of block 7"):
            empty(100)
        told = torch.cuda.memory._snapshot()["external_annotations"]
        self.assertEqual(
            [(one["stage"], one["name"], one["device"]) for one in told],
            [("START", "forward of block 7", 0), ("END", "forward of block 7", 0)],
        )
        torch.cuda.memory._record_memory_history(None)

    def test_the_viewers_take_a_snapshot(self):
        history()
        kept = [empty(size) for size in (1000, 3 * MIB, 30 * MIB)]
        del kept[1]
        with tempfile.NamedTemporaryFile() as file:
            torch.cuda.memory._dump_snapshot(file.name)
            snapshot = pickle.load(file)
        self.assertIn("segments: ", viz.segsum(snapshot))
        self.assertIn("total_reserved: ", viz.segsum(snapshot))
        self.assertIn("# free completed for", viz.trace(snapshot))
        for page in (viz.trace_plot(snapshot), viz.segment_plot(snapshot)):
            self.assertIn("<!DOCTYPE html>", page)
            self.assertGreater(len(page), 1000)
        code = viz.format_flamegraph.__code__
        viz.format_flamegraph.__code__ = NO_NETWORK
        try:
            self.assertIn("active_allocated", viz.segments(snapshot))
            for lines in (viz.segments(snapshot), viz.memory(snapshot)):
                self.assertIn("cuda_snapshot_test.py", lines)
        finally:
            viz.format_flamegraph.__code__ = code
        del kept


class Listeners(CudaCase):
    def test_python_hears_of_each_block(self):
        torch._C._activate_gpu_trace()
        came, went = unittest.mock.Mock(), unittest.mock.Mock()
        gpu_trace.register_callback_for_memory_allocation(came)
        gpu_trace.register_callback_for_memory_deallocation(went)
        kept = empty(1000)
        where = kept.data_ptr()
        came.assert_called_once_with(where)
        went.assert_not_called()
        del kept
        went.assert_called_once_with(where)

    def test_the_profiler_hears_of_each_block(self):
        # Through kineto only where there is a profiler of the device; the legacy one asks the allocator.
        with torch.autograd.profiler.profile(use_kineto=True, profile_memory=True, use_device=None) as profile:
            kept = empty(3 * MIB + 5000)
            del kept
            with rounding(4):
                kept = empty(3 * MIB + 5000)
                del kept
        told = [event.device_memory_usage for event in profile.function_events if event.device_memory_usage != 0]
        self.assertEqual(told, [3 * MIB + 5120, -3 * MIB - 5120, 3 * MIB + MIB // 2, -3 * MIB - MIB // 2])


if __name__ == "__main__":
    print("allocator:", ALLOCATOR)
    unittest.main(verbosity=2)
