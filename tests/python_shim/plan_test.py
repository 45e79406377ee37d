"""Traces, plans and placements as objects of Python. No torch."""

import json
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
    births = [draw.randrange(1000) for _ in range(count)]
    return [draw.randrange(1, 5000) for _ in range(count)], births, [birth + draw.randrange(1, 100) for birth in births]


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
        sizes, births, ends = random_lifetimes(300, 1)
        placed = berth.place(sizes, births, ends, alignment=64, iterations=20)
        offsets = placed.offsets
        self.assertEqual(len(placed), 300)
        self.assertTrue((offsets % 64 == 0).all())
        for a in range(300):
            for b in range(a):
                if births[a] < ends[b] and births[b] < ends[a]:
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
        around = berth.place(
            [4, 6], [8, 2], [12, 8], period=10
        )  # the first lives on [8, 12), which is [8, 10) and [0, 2)
        self.assertEqual((around.high_water_mark, around.proven_optimal), (6, True))
        self.assertEqual(len(berth.place([], [], [])), 0)

    def test_a_capacity_that_nothing_fits_is_proven(self):
        placed = berth.place([10, 10], [0, 0], [5, 5], capacity=15)
        self.assertTrue(placed.proven_infeasible)

    def test_what_is_wrong_is_named_by_argument_and_row(self):
        good = {"sizes": [1, 2], "births": [0, 1], "ends": [2, 3]}
        for changes, text in (
            ({"sizes": [1, 0]}, "sizes[1] is 0: a buffer of no bytes needs no place"),
            ({"sizes": [1, -5]}, "sizes[1] is -5: 0 to"),
            ({"sizes": [1, 2, 3]}, "births has 2 rows, sizes has 3"),
            ({"ends": [2, 1]}, "ends[1] is 1: it is not after the row's birth"),
            ({"sizes": [1.5, 2]}, "sizes holds float64: whole numbers are wanted"),
            ({"sizes": [[1, 2]]}, "sizes has 2 dimensions: one is wanted"),
            ({"sizes": ["a", "b"]}, "sizes holds <U1: whole numbers are wanted"),
            ({"births": [0, 9], "ends": [2, 10], "period": 5}, "births[1] is 9: it is not below the period, 5"),
            ({"ends": [2, 9], "period": 5}, "ends[1] is 9: the buffer lives longer than the period, 5"),
            ({"pinned": [0]}, "pinned has 1 rows, sizes has 2"),
            ({"pinned": [0, -1]}, "pinned[1] is -1"),
            ({"pinned": [0, 0]}, "pin"),
            ({"alignment": 3}, "alignment is 3: a power of two is wanted"),
            ({"time_limit": 0}, "time_limit is 0"),
            ({"iterations": -1}, "iterations is -1"),
            ({"threads": 1.5}, "threads is 1.5"),
            ({"engine": "best"}, "engine is 'best', legal are: auto"),
        ):
            with self.subTest(text), self.assertRaises(berth.UsageError) as caught:
                berth.place(**{**good, **changes})
            self.assertIn(text, str(caught.exception))
        self.assertTrue(issubclass(berth.UsageError, berth.Error) and issubclass(berth.UsageError, ValueError))


class Orders(Case):
    # 0 and 1 make 90 bytes each, 2 and 3 make 10 of them, 4 reads these.
    SMALL = {"sizes": [90, 90, 10, 10], "makers": [0, 1, 2, 3], "readers": [[2], [3], [4], [4]]}

    def random_operators(self, count, seed):
        draw = random.Random(seed)
        readers = [
            sorted({draw.randrange(maker + 1, count) for _ in range(draw.randrange(3))}) for maker in range(count - 1)
        ]
        return [draw.randrange(1, 500) for _ in readers], list(range(count - 1)), readers

    def peak_of(self, order, sizes, makers, readers):
        at = {int(operator): step for step, operator in enumerate(order)}
        live = [0] * len(at)
        for size, maker, some in zip(sizes, makers, readers):
            for step in range(at[maker], max([at[maker], *(at[reader] for reader in some)]) + 1):
                live[step] += size
        return max(live)

    def test_what_is_large_is_used_up_before_more_is_made(self):
        found = berth.order(**self.SMALL)
        self.assertEqual(
            (found.given_peak, found.peak, found.bound, found.gap, found.proven_optimal), (190, 110, 110, 0.0, True)
        )
        self.assertEqual(sorted(found.order.tolist()), [0, 1, 2, 3, 4])
        self.assertIn("5 operators: peak 110", repr(found))

    def test_the_peak_is_what_the_order_has_alive(self):
        for seed in range(5):
            operators = self.random_operators(60, seed)
            found = berth.order(*operators, iterations=2000, seed=seed)
            at = np.argsort(found.order)
            for maker, some in zip(operators[1], operators[2]):
                self.assertTrue(all(at[maker] < at[reader] for reader in some))
            self.assertEqual(found.peak, self.peak_of(found.order, *operators))
            self.assertEqual(found.given_peak, self.peak_of(range(60), *operators))
            self.assertLessEqual(found.bound, found.peak)
            again = berth.order(*operators, iterations=2000, seed=seed)
            np.testing.assert_array_equal(again.order, found.order)

    def test_workspaces_inputs_residents_edges_and_given_orders_count(self):
        found = berth.order([8], [-1], [[1]], workspaces=[5, 7, 100], resident=1000, control=[(0, 1), (1, 2)])
        self.assertEqual((found.order.tolist(), found.peak), ([0, 1, 2], 1100))
        found = berth.order([8], np.array([-1]), [np.array([1], np.uint8)], control=np.array([[0, 1]]))
        self.assertEqual((len(found), found.peak), (2, 8))
        given = berth.order(**self.SMALL, given=[1, 3, 0, 2, 4], engine="given")
        self.assertEqual((given.order.tolist(), given.peak, given.engine), ([1, 3, 0, 2, 4], 110, "given"))
        self.assertEqual(len(berth.order([], [], [])), 0)
        self.assertFalse(given.order.flags.writeable or given.order.flags.owndata)

    def test_progress_is_told_and_its_exception_is_raised(self):
        seen = []
        berth.order(*self.random_operators(300, 1), iterations=100, progress=seen.append)
        self.assertLessEqual(seen[-1].bound, seen[-1].peak)
        self.assertIn("best", repr(seen[-1]))

        def fail(progress):
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            berth.order(**self.SMALL, progress=fail)

    def test_what_is_wrong_is_named_by_argument_and_row(self):
        for changes, text in (
            ({"sizes": [1, -5, 1, 1]}, "sizes[1] is -5: 0 to"),
            ({"makers": [0, 1, -2, 3]}, "makers[2] is -2: 0 to"),
            ({"makers": [0, 1.5, 2, 3]}, "makers holds float64: whole numbers are wanted"),
            ({"makers": [0, 1]}, "makers has 2 rows, sizes has 4"),
            ({"readers": [[2]]}, "readers has 1 rows, sizes has 4"),
            ({"readers": [[2], [3], [-4], [4]]}, "readers[2][0] is -4"),
            (
                {"readers": [[2], [3], [4], [1 << 40]]},
                "operators up to number 1099511627776, the most that are ordered are 32768",
            ),
            ({"workspaces": [0, 0]}, "makers names operator 3, workspaces has 2 rows"),
            ({"workspaces": [0] * 4}, "readers names operator 4, workspaces has 4 rows"),
            ({"workspaces": [0] * 40000}, "a graph of 40000 operators is to be ordered, the most is 32768"),
            ({"control": [1, 2]}, "control has the shape (2,)"),
            ({"control": [(0, -1)]}, "control[1] is -1"),
            ({"control": [(4, 0)]}, "lies on a cycle"),
            ({"given": [0, 1]}, "the order has 2 nodes"),
            ({"resident": -1}, "resident is -1"),
            ({"resident": 1 << 62}, "resident is"),
            ({"sizes": [(1 << 62) - 1] * 4}, "all sizes together are above"),
            ({"time_limit": 0}, "time_limit is 0"),
            ({"iterations": -1}, "iterations is -1"),
            ({"engine": "olla"}, "engine is 'olla', legal are: auto"),
        ):
            with self.subTest(text), self.assertRaises(berth.UsageError) as caught:
                berth.order(**{**self.SMALL, **changes})
            self.assertIn(text, str(caught.exception))


class Schedules(Case):
    # x -> h -> y forward; y -> wide -> small, then h and small back: h does not fit beside wide.
    @staticmethod
    def step(unit=1, **changes):
        sizes = [size * unit for size in (100, 400, 100, 500, 50, 50)]
        classes = ["input"] + ["step"] * 5

        def operator(name, phase, ns, reads, makes):
            read = [[storage, int(storage > 0), 0, sizes[storage]] for storage in reads]
            return {
                "name": name,
                "phase": phase,
                "alternatives": [
                    {"ns": ns, "workspace": 0, "reads": read, "writes": [[makes, 1]], "algorithm": "only"}
                ],
            }

        graph = {
            "format": "berth-graph 1",
            "storages": [{"bytes": size, "class": kind} for size, kind in zip(sizes, classes)],
            "operators": [
                operator("grow", "forward", 10, [0], 1),
                operator("shrink", "forward", 20, [1], 2),
                operator("widen", "backward", 30, [2], 3),
                operator("narrow", "backward", 40, [3], 4),
                operator("join", "backward", 50, [1, 4], 5),
            ],
        }
        return berth.Graph.from_json(json.dumps({**graph, **changes}))

    def chain(self, length):
        """A graph of many layers, whose search has something to do."""
        storages = [{"bytes": 100, "class": "input"}] + [
            {"bytes": 900 + k % 7, "class": "step"} for k in range(2 * length)
        ]

        def operator(name, phase, ns, reads, makes):
            return {
                "name": name,
                "phase": phase,
                "alternatives": [
                    {
                        "ns": ns,
                        "workspace": 0,
                        "reads": [[s, int(s > 0), 0, storages[s]["bytes"]] for s in reads],
                        "writes": [[makes, 1]],
                    }
                ],
            }

        forward = [operator(f"f{k}", "forward", 100 + k, [k], k + 1) for k in range(length)]
        backward = [operator(f"b{k}", "backward", 200, [length + k, length - k], length + k + 1) for k in range(length)]
        return berth.Graph.from_json(
            json.dumps({"format": "berth-graph 1", "storages": storages, "operators": forward + backward})
        )

    def test_a_graph_is_read_and_written(self):
        graph = self.step()
        self.assertEqual(graph.operators, ["grow", "shrink", "widen", "narrow", "join"])
        self.assertEqual(graph.storage_bytes.tolist(), [100, 400, 100, 500, 50, 50])
        self.assertFalse(graph.storage_bytes.flags.writeable or graph.storage_bytes.flags.owndata)
        self.assertEqual((len(graph), len(graph.order)), (5, 0))
        for name in ("step.graph", "step.json"):
            graph.save(self.folder / name)
            self.assertEqual(berth.Graph.load(self.folder / name), graph)
        self.assertEqual(
            json.loads((self.folder / "step.json").read_text())["operators"][0]["alternatives"][0]["algorithm"], "only"
        )
        self.assertEqual(berth.Graph.from_json(graph.to_json()), graph)
        self.assertIn("5 operators, 6 storages", repr(graph))
        with self.assertRaises(berth.InputError) as caught:
            self.step(order=[0, 0])
        self.assertIn("names operator 0 twice", str(caught.exception))
        with self.assertRaises(berth.InputError):
            berth.Graph.from_trace(berth.Trace.load(self.trace_of_steps()))

    def test_what_does_not_fit_is_made_again(self):
        graph = self.step()
        found = berth.schedule(graph, 800, iterations=1000)
        schedule = found.schedule
        self.assertIsNone(schedule.verify(graph))
        self.assertEqual(
            (found.base_peak, found.base_time_ns, found.time_ns, found.recomputed, found.recomputed_ns),
            (1000, 150, 160, 1, 10),
        )
        self.assertLessEqual(found.peak, 800)
        self.assertEqual((schedule.budget, schedule.time_ns, schedule.peak), (800, 160, found.peak))
        steps = schedule.steps
        self.assertEqual(sorted(steps.targets[steps.kinds == 0].tolist()), [0, 0, 1, 2, 3, 4])
        self.assertFalse(steps.kinds.flags.writeable or steps.kinds.flags.owndata)
        self.assertLessEqual(schedule.arena_bytes, 800)
        self.assertEqual(len(schedule), len(steps))
        for buffer, storage in enumerate(schedule.storages):
            for offset in schedule.offsets(buffer):
                self.assertLessEqual(int(offset) + int(graph.storage_bytes[storage]), schedule.arena_bytes)
        with self.assertRaises(IndexError):
            schedule.offsets(len(schedule.storages))
        schedule.save(self.folder / "x.schedule")
        self.assertEqual(berth.Schedule.load(self.folder / "x.schedule"), schedule)
        self.assertEqual(berth.schedule(graph, 800, iterations=1000).schedule, schedule)
        self.assertEqual(berth.schedule(graph, 800, iterations=1, given=[schedule]).time_ns, 160)
        self.assertIn("nothing", repr(berth.schedule(graph, 800, engine="order")))
        self.assertIn("is for the graph", schedule.verify(self.step(order=[0, 1, 2, 3, 4])))

    def test_what_does_not_fit_is_copied(self):
        unit, rate = 1 << 12, 10**15  # smaller values are not copied
        rows = json.loads(self.step(unit).to_json())
        look = {"ns": 10, "workspace": 0, "reads": [[2, 1, 0, 100 * unit]], "writes": []}
        rows["operators"].insert(
            2, {"name": "look", "phase": "forward", "alternatives": [look]}
        )  # the copy ends meanwhile
        graph = berth.Graph.from_json(json.dumps(rows))
        found = berth.schedule(graph, 800 * unit, rate_in=rate, iterations=1000)
        self.assertIsNone(found.schedule.verify(graph, rate, rate))
        self.assertEqual(
            (found.recomputed, found.offloaded_bytes, found.reloaded_bytes, found.host_peak),
            (0, 400 * unit, 400 * unit, 400 * unit),
        )
        self.assertLess(found.time_ns, 170)
        self.assertEqual(found.schedule.host_bytes, 400 * unit)
        steps = found.schedule.steps
        self.assertEqual(steps.offsets[steps.kinds == 2].tolist(), [0])

    def test_that_nothing_fits_is_an_answer(self):
        found = berth.schedule(self.step(), 100)
        self.assertIsNone(found.schedule)
        self.assertEqual(found.missing_bytes, found.least_budget - 100)
        self.assertIn(found.largest, found.why_not)
        self.assertIn("nothing, operator", repr(found))

    def test_without_a_budget_the_least_memory_is_found(self):
        graph = self.step()
        found = berth.schedule(graph, None, iterations=1000)
        self.assertIsNone(found.schedule.verify(graph))
        self.assertLess(found.peak, 1000)
        self.assertGreaterEqual(found.peak, found.least_budget)
        self.assertIsNone(berth.schedule(graph, found.peak - 1, iterations=1000).schedule)

    def test_progress_is_told_and_its_exception_is_raised(self):
        seen = []
        berth.schedule(self.step(), 2000, progress=seen.append)
        self.assertEqual(seen[-1].time_ns, 150)
        self.assertIn("best", repr(seen[-1]))

        def fail(progress):
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            berth.schedule(self.step(), 2000, progress=fail)

    def test_ctrl_c_ends_the_search(self):
        graph = self.chain(60)
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        found = berth.schedule(graph, 20_000, time_limit=300)
        timer.join()
        self.assertTrue(found.cancelled)
        self.assertLess(found.seconds, 150)

    def test_what_is_wrong_is_named(self):
        for arguments, changes, text in (
            (("x.graph", 800), {}, "graph is a str: a berth.Graph or a berth.Trace is wanted"),
            ((self.step(), -1), {}, "budget is -1"),
            ((self.step(), True), {}, "budget is True"),
            ((self.step(), 800), {"rate_in": 0}, "rate_in is 0"),
            (
                (self.step(), 800),
                {"rate_out": 1 << 60},
                "rate_out is 1152921504606846976: bytes from 1 to 1000000000000000",
            ),
            ((self.step(), 800), {"engine": "ilp"}, "engine is 'ilp', legal are: auto"),
            ((self.step(), 800), {"time_limit": 0}, "time_limit is 0"),
        ):
            with self.subTest(text), self.assertRaises(berth.UsageError) as caught:
                berth.schedule(*arguments, **changes)
            self.assertIn(text, str(caught.exception))


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
        self.assertEqual(
            (trace.marks, trace.alignment, trace.closed, trace.cut_bytes, trace.lanes.tolist()), (5, 512, True, 0, [0])
        )
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
        for content, text in (
            (b"", "is empty"),
            (b"nonsense", "is no trace"),
            (b"BERTHTRC" + bytes(100), "is no whole trace"),
        ):
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
        self.assertEqual(
            (sequence.lane, sequence.parent, sequence.fork, sequence.period, len(sequence)), (0, -1, 0, 3, 3)
        )
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
