"""Traces, plans and placements as objects of Python. No torch."""

import math
import os
import pathlib
import random
import signal
import tempfile
import threading
import time
import unittest

import berth
import numpy as np

LIFETIMES = "id,lower,upper,size\n"
EVENTS = "action,id,bytes,stream\n"


def random_lifetimes(count, seed):
    draw = random.Random(seed)
    lowers = [draw.randrange(1000) for _ in range(count)]
    return [draw.randrange(1, 5000) for _ in range(count)], lowers, [lower + draw.randrange(1, 100) for lower in lowers]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def trace_of_steps(self, sizes=(1000, 2000, 3000), steps=5):
        """A trace whose steps ask for `sizes`, of which the first is freed before the last is asked for."""
        rows, block = [EVENTS], 0
        for _ in range(steps):
            first = block
            for number, size in enumerate(sizes):
                if number == len(sizes) - 1:
                    rows.append(f"free,{first},,\n")
                rows.append(f"alloc,{block},{size},0\n")
                block += 1
            rows += [f"free,{number},,\n" for number in range(first + 1, block)] + ["step,,,\n"]
        path = self.folder / "steps.csv"
        path.write_text("".join(rows))
        return path


class Place(Case):
    def test_no_two_buffers_that_are_alive_together_share_a_byte(self):
        sizes, lowers, uppers = random_lifetimes(300, 1)
        placed = berth.place(sizes, lowers, uppers, alignment=64, iterations=20)
        offsets = placed.offsets
        self.assertEqual(len(placed), 300)
        self.assertTrue((offsets % 64 == 0).all())
        for a in range(300):
            for b in range(a):
                if lowers[a] < uppers[b] and lowers[b] < uppers[a]:
                    self.assertTrue(offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a], (a, b))
        self.assertEqual(placed.high_water_mark, max(int(o) + -(-s // 64) * 64 for o, s in zip(offsets, sizes)))
        self.assertGreaterEqual(placed.high_water_mark, placed.lower_bound)
        self.assertAlmostEqual(placed.gap, placed.high_water_mark / placed.lower_bound - 1)
        self.assertFalse(placed.cancelled)
        self.assertIn("300 buffers", repr(placed))

    def test_equal_seeds_give_equal_offsets(self):
        lifetimes = random_lifetimes(500, 2)
        one, other = (berth.place(*lifetimes, iterations=50, seed=7, threads=threads) for threads in (1, 2))
        np.testing.assert_array_equal(one.offsets, other.offsets)

    def test_arrays_of_any_whole_numbers_are_taken_and_offsets_are_a_view(self):
        for kind in (np.int32, np.uint16, np.int64, np.uint64):
            placed = berth.place(np.array([1, 2], kind), np.array([0, 0], kind), np.array([1, 1], kind))
            self.assertEqual(placed.high_water_mark, 3)
        self.assertFalse(placed.offsets.flags.writeable)
        self.assertFalse(placed.offsets.flags.owndata)
        offsets = placed.offsets
        del placed
        self.assertEqual(sorted(offsets.tolist()), [0, 2] if offsets[0] else [0, 1])

    def test_pins_circles_and_nothing(self):
        placed = berth.place([10, 10], [0, 0], [5, 5], pinned=[None, 0])
        self.assertEqual(placed.offsets.tolist(), [10, 0])
        around = berth.place([4, 6], [8, 2], [12, 8], period=10)  # the first lives on [8, 12), which is [8, 10) and [0, 2)
        self.assertEqual((around.high_water_mark, around.proven_optimal), (6, True))
        self.assertEqual(len(berth.place([], [], [])), 0)

    def test_a_capacity_that_nothing_fits_is_proven(self):
        placed = berth.place([10, 10], [0, 0], [5, 5], capacity=15)
        self.assertTrue(placed.proven_infeasible)

    def test_what_is_wrong_is_named_by_argument_and_row(self):
        good = {"sizes": [1, 2], "lowers": [0, 1], "uppers": [2, 3]}
        for changes, text in (
                ({"sizes": [1, 0]}, "sizes[1] is 0: a buffer of no bytes needs no place"),
                ({"sizes": [1, -5]}, "sizes[1] is -5: 0 to"),
                ({"sizes": [1, 2, 3]}, "lowers has 2 rows, sizes has 3"),
                ({"uppers": [2, 1]}, "uppers[1] is 1: it is not after the row's lower"),
                ({"sizes": [1.5, 2]}, "sizes holds float64: whole numbers are wanted"),
                ({"sizes": [[1, 2]]}, "sizes has 2 dimensions: one is wanted"),
                ({"sizes": ["a", "b"]}, "sizes holds <U1: whole numbers are wanted"),
                ({"lowers": [0, 9], "uppers": [2, 10], "period": 5}, "lowers[1] is 9: it is not below the period, 5"),
                ({"uppers": [2, 9], "period": 5}, "uppers[1] is 9: the buffer lives longer than the period, 5"),
                ({"pinned": [0]}, "pinned has 1 rows, sizes has 2"),
                ({"pinned": [0, -1]}, "pinned[1] is -1"),
                ({"pinned": [0, 0]}, "pin"),
                ({"alignment": 3}, "alignment is 3: a power of two is wanted"),
                ({"time_limit": 0}, "time_limit is 0"),
                ({"iterations": -1}, "iterations is -1"),
                ({"threads": 1.5}, "threads is 1.5"),
                ({"engine": "best"}, "engine is 'best', legal are: auto")):
            with self.subTest(text), self.assertRaises(berth.UsageError) as caught:
                berth.place(**{**good, **changes})
            self.assertIn(text, str(caught.exception))
        self.assertTrue(issubclass(berth.UsageError, berth.Error) and issubclass(berth.UsageError, ValueError))


class Searches(Case):
    def test_progress_is_told_and_its_exception_is_raised(self):
        seen = []
        berth.place(*random_lifetimes(2000, 3), time_limit=0.5, progress=seen.append)
        self.assertTrue(seen)
        self.assertGreaterEqual(seen[-1].high_water_mark, seen[-1].lower_bound)
        self.assertIn("best", repr(seen[-1]))

        def fail(progress):
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            berth.place(*random_lifetimes(2000, 3), time_limit=5, progress=fail)

    def test_ctrl_c_takes_the_best_so_far(self):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        placed = berth.place(*random_lifetimes(3000, 4), time_limit=60)
        self.assertLess(time.monotonic() - start, 30)
        self.assertTrue(placed.cancelled)
        self.assertEqual(len(placed), 3000)

    def test_other_threads_run_meanwhile(self):
        done = threading.Event()
        thread = threading.Thread(target=lambda: (berth.place(*random_lifetimes(3000, 4), time_limit=1), done.set()))
        thread.start()
        turns = 0
        while not done.is_set():
            turns += 1
            time.sleep(0.001)
        thread.join()
        self.assertGreater(turns, 50)


class Traces(Case):
    def test_a_trace_is_a_table_of_requests(self):
        trace = berth.Trace.load(self.trace_of_steps())
        self.assertIn("15 requests, 5 marked steps", repr(trace))
        requests = trace.requests
        self.assertEqual(requests.bytes[:3].tolist(), [1000, 2000, 3000])
        self.assertTrue((requests.freed > requests.ticks).all())
        self.assertEqual(requests.lanes.dtype, np.uint32)
        self.assertFalse(requests.bytes.flags.owndata or requests.bytes.flags.writeable)
        self.assertEqual((trace.marks, trace.alignment, trace.closed, trace.cut_bytes, trace.lanes.tolist()), (5, 512, True, 0, [0]))
        (step,) = trace.steps()
        self.assertEqual(step.bytes.tolist(), [1000, 2000, 3000])
        self.assertEqual(step.lengths.tolist(), [2, 2, 1])
        self.assertEqual((step.seen >= 2, step.placed, step.bucket), (True, False, False))

    def test_what_is_saved_is_read_again(self):
        trace = berth.Trace.load(self.trace_of_steps(sizes=tuple(range(1, 3000)), steps=3))
        trace.save(self.folder / "x.trace")
        again = berth.Trace.load(str(self.folder / "x.trace"))
        self.assertEqual(repr(again), repr(trace))
        for name in ("ids", "bytes", "ticks", "freed", "times_ns", "lanes", "tags"):
            np.testing.assert_array_equal(getattr(again.requests, name), getattr(trace.requests, name))
        again.save(self.folder / "y.trace")
        self.assertEqual((self.folder / "x.trace").stat().st_size, (self.folder / "y.trace").stat().st_size)

    def test_a_damaged_file_is_an_input_error_that_names_it(self):
        for content, text in ((b"", "is empty"), (b"nonsense", "is no trace"), (b"BERTHTRC" + bytes(100), "is no whole trace")):
            path = self.folder / "bad.trace"
            path.write_bytes(content)
            with self.assertRaises(berth.InputError) as caught:
                berth.Trace.load(path)
            self.assertIn("bad.trace", str(caught.exception))
        with self.assertRaises(berth.Error) as caught:
            berth.Trace.load(self.folder / "absent")
        self.assertIn("absent", str(caught.exception))
        with self.assertRaises(TypeError):
            berth.Trace.load(7)


class Plans(Case):
    def plan(self, **options):
        return berth.plan(berth.Trace.load(self.trace_of_steps()), **options)

    def test_a_plan_places_each_request_of_the_step(self):
        plan = self.plan(iterations=10)
        self.assertIsNone(plan.verify())
        (step,) = plan.steps()
        self.assertEqual(step.bytes.tolist(), [1000, 2000, 3000])
        self.assertEqual(plan.arena_bytes, 2048 + 3072)
        self.assertEqual((plan.lower_bound, plan.gap, plan.alignment, len(plan)), (5120, 0.0, 512, 3))
        (sequence,) = plan.sequences
        self.assertEqual((sequence.lane, sequence.parent, sequence.fork, sequence.period, len(sequence)), (0, -1, 0, 3, 3))
        np.testing.assert_array_equal(sequence.offsets, step.offsets)
        self.assertEqual(sequence.sizes.tolist(), [1024, 2048, 3072])
        self.assertEqual(sequence.births.tolist(), [0, 1, 2])
        self.assertFalse(sequence.offsets.flags.owndata or sequence.offsets.flags.writeable)
        offsets = sequence.offsets
        del plan, sequence, step
        self.assertEqual(len(offsets.tolist()), 3)

    def test_it_is_saved_and_read_again(self):
        plan = self.plan(iterations=10)
        plan.save(self.folder / "x.plan")
        again = berth.Plan.load(self.folder / "x.plan")
        self.assertEqual(again, plan)
        self.assertNotEqual(again, self.plan(iterations=10, alignment=1024))
        self.assertNotEqual(again, "a plan")
        damaged = bytearray((self.folder / "x.plan").read_bytes())
        damaged[len(damaged) // 2] ^= 1
        (self.folder / "x.plan").write_bytes(damaged)
        with self.assertRaises(berth.InputError) as caught:
            berth.Plan.load(self.folder / "x.plan")
        self.assertIn("x.plan", str(caught.exception))

    def test_it_shows_itself(self):
        plan = self.plan(iterations=10)
        self.assertIn("arena 5.0 KiB, bound 5.0 KiB, gap 0.00 %", repr(plan))
        self.assertTrue(plan._repr_html_().startswith("<svg"))
        self.assertIn("my title", plan.svg("my title"))

    def test_kinds_of_steps_are_paths(self):
        rows, block = [EVENTS], 0
        draw = random.Random(5)
        for turn in (draw.randrange(2) for _ in range(60)):  # in no cycle
            for size in ((1000, 2000), (1000, 5000, 700))[turn]:
                rows.append(f"alloc,{block},{size},0\nfree,{block},,\n")
                block += 1
            rows.append("step,,,\n")
        path = self.folder / "kinds.csv"
        path.write_text("".join(rows))
        trace = berth.Trace.load(path)
        self.assertEqual(sorted(len(step) for step in trace.steps()), [2, 3])
        plan = berth.plan(trace, iterations=5)
        self.assertEqual(sorted(step.bytes.tolist() for step in plan.steps()), [[1000, 2000], [1000, 5000, 700]])
        self.assertTrue(all(step.placed for step in plan.steps()))

    def test_nothing_that_repeats_is_an_input_error(self):
        path = self.folder / "once.csv"
        path.write_text(EVENTS + "alloc,0,5,0\nfree,0,,\nalloc,1,6,0\n")
        with self.assertRaises(berth.InputError) as caught:
            berth.plan(berth.Trace.load(path))
        self.assertIn("no step to plan", str(caught.exception))
        self.assertEqual(berth.Trace.load(path).steps(), [])
        with self.assertRaises(berth.UsageError) as caught:
            berth.plan("x.trace")
        self.assertIn("trace is a str", str(caught.exception))
        with self.assertRaises(berth.UsageError):
            self.plan(time_limit=-math.inf)


class Package(unittest.TestCase):
    def test_without_torch_nothing_of_it_is_imported(self):
        import sys

        self.assertNotIn("torch", sys.modules)
        self.assertFalse(berth.installed())
        berth.mark_step()
        with berth.scope("x"):
            pass
        with self.assertRaises(berth.UsageError) as caught:
            berth.stats()
        self.assertIn("call berth.install() first", str(caught.exception))

    def test_everything_public_is_described(self):
        for name in berth.__all__:
            self.assertTrue(name.startswith("__") or getattr(berth, name).__doc__, name)
        self.assertIn("hits", berth.Stats.__dataclass_fields__)


if __name__ == "__main__":
    unittest.main()
