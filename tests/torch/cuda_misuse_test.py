#!/usr/bin/env python3
"""berth under torch where a program, a plan or a machine is not what it should be: one message each, and all goes on.

cuda_misuse_test.py BERTH LIBRARY COMPILER runs the tests, with the program `berth`, libberth_torch_cuda.so and a C compiler;
cuda_misuse_test.py SCENARIO .. is how they start a process of its own.
"""

import builtins
import ctypes
import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import torch
from cuda_berth import berth_stats, child, hits_of_a_step, learn, mark_step, steps
from cuda_support import GIB, MIB, PLAIN, RANDOM, CudaCase, driver_bytes, empty, runtime, stat, use

runtime.berth_standin_take_elsewhere.argtypes = [ctypes.c_int, ctypes.c_size_t]


def take_all_but(left):
    """As if another process took the rest of the GPU."""
    free, _ = torch.cuda.mem_get_info()
    runtime.berth_standin_take_elsewhere(0, free - left if left is not None else 0)


def warnings_in(standard_error):
    return [line for line in standard_error.splitlines() if line.startswith("berth: ")]


class Frees(CudaCase):
    def test_a_block_may_be_freed_while_another_gpu_is_current(self):
        with torch.cuda.device(0):
            block = torch.cuda.caching_allocator_alloc(3 * MIB)
        before = torch.cuda.memory_allocated(0)
        with torch.cuda.device(1):
            torch.cuda.caching_allocator_delete(block)
        self.assertEqual(torch.cuda.memory_allocated(0), before - 3 * MIB)

    def test_an_unknown_pointer_is_an_error_that_names_it(self):
        for pointer in (0x1234567000, id(self)):
            with self.assertRaisesRegex(RuntimeError, f"invalid device pointer.*{pointer:x}"):
                torch.cuda.caching_allocator_delete(pointer)

    def test_a_second_free_and_one_inside_a_block_change_nothing(self):
        block = torch.cuda.caching_allocator_alloc(3 * MIB)
        with self.assertRaisesRegex(RuntimeError, f"invalid device pointer.*{block + 512:x}: no live block"):
            torch.cuda.caching_allocator_delete(block + 512)
        torch.cuda.caching_allocator_delete(block)
        before = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        with self.assertRaisesRegex(RuntimeError, f"invalid device pointer.*{block:x}: no live block"):
            torch.cuda.caching_allocator_delete(block)
        self.assertEqual((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()), before)
        self.assertGreaterEqual(berth_stats()["misuses"], 2)
        empty(3 * MIB)


class RecordedStreams(CudaCase):
    pace = RANDOM

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.zeros(1, device="cuda:0").to("cuda:1").to("cuda:0")  # each reaches the other's memory from now on

    def setUp(self):
        super().setUp()
        self.stream = ctypes.c_void_p()
        self.assertEqual(runtime.cudaStreamCreateWithFlags(ctypes.byref(self.stream), 1), 0)

    def tearDown(self):
        if self.stream:
            runtime.cudaStreamDestroy(self.stream)
        super().tearDown()

    def reuse(self, size):
        for _ in range(3):
            use(empty(size), torch.cuda.current_stream())

    def test_a_stream_of_another_gpu_is_waited_for(self):
        tensor = empty(4 * MIB)
        with torch.cuda.device(1):
            other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        use(tensor, other)
        tensor.record_stream(other)
        del tensor
        self.reuse(4 * MIB)
        other.synchronize()
        torch.cuda.empty_cache()  # asks what is over
        self.assertEqual(stat("active.all.current"), stat("allocation.all.current"))

    def test_a_planned_block_is_waited_for_on_a_stream_of_another_gpu(self):
        learn()
        with torch.cuda.device(1):
            other = torch.cuda.Stream()
        for _ in range(3):
            tensor = empty(MIB)  # the first request of a step
            other.wait_stream(torch.cuda.current_stream())
            use(tensor, other)
            tensor.record_stream(other)
            del tensor
            use(empty(2 * MIB), torch.cuda.current_stream())
            mark_step()
        self.settle()

    def test_a_foreign_stream_is_waited_for(self):
        foreign = torch.cuda.ExternalStream(self.stream.value)
        tensor = empty(4 * MIB)
        foreign.wait_stream(torch.cuda.current_stream())
        use(tensor, foreign)
        tensor.record_stream(foreign)
        del tensor
        self.reuse(4 * MIB)

    def test_a_stream_that_is_gone_by_the_free_is_no_harm(self):
        foreign = torch.cuda.ExternalStream(self.stream.value)
        tensor = empty(4 * MIB)
        foreign.wait_stream(torch.cuda.current_stream())
        use(tensor, foreign)
        tensor.record_stream(foreign)
        runtime.cudaStreamDestroy(self.stream)
        self.stream = None
        del tensor
        self.reuse(4 * MIB)
        self.settle()
        self.assertEqual(stat("active.all.current"), stat("allocation.all.current"))

    def test_a_stream_that_was_gone_before_is_no_harm(self):
        foreign = torch.cuda.ExternalStream(self.stream.value)
        runtime.cudaStreamDestroy(self.stream)
        self.stream = None
        tensor = empty(4 * MIB)
        tensor.record_stream(foreign)
        del tensor
        self.reuse(4 * MIB)
        self.settle()
        self.assertEqual(stat("active.all.current"), stat("allocation.all.current"))

    def test_nothing_and_memory_of_others_is_left_alone(self):
        side = torch.cuda.Stream()
        empty(0).record_stream(side)
        pointer = ctypes.c_void_p()
        self.assertEqual(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(MIB)), 0)

        class Foreign:
            __cuda_array_interface__ = {"shape": (MIB,), "typestr": "|u1", "data": (pointer.value, False), "version": 3}

        tensor = torch.as_tensor(Foreign(), device="cuda")
        self.assertEqual(tensor.data_ptr(), pointer.value)
        tensor.record_stream(side)
        del tensor
        self.assertEqual(runtime.cudaFree(pointer), 0)


class Captures(CudaCase):
    def elsewhere(self, work):
        """What another thread makes of `work`, on a stream of its own, while this one captures; and the graph."""
        seen = {}

        def other_thread():
            with torch.cuda.stream(torch.cuda.Stream()):
                try:
                    seen["result"] = work()
                except RuntimeError as problem:
                    seen["error"] = problem

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # in its strictest mode: no thread may call what could wait
            thread = threading.Thread(target=other_thread)
            thread.start()
            thread.join()
            result = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
        graph.replay()
        torch.cuda.synchronize()
        del result
        return seen

    def test_the_pool_grows_while_another_thread_captures(self):
        seen = self.elsewhere(lambda: empty(300 * MIB))
        self.assertEqual(seen["result"].numel(), 300 * MIB)

    def test_a_graph_has_no_byte_of_the_plan(self):
        side, replays = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(side):
            learn()
        runtime.berth_standin_set_pace(RANDOM)
        hits = berth_stats()["hits"]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            for size in (MIB, 2 * MIB, 5 * MIB):  # of the step, on the stream of the step
                use(empty(size), side)
        self.assertEqual(berth_stats()["hits"], hits)
        if PLAIN:  # the capture began with empty_cache(): an arena of one allocation went, and comes back at a mark
            with torch.cuda.stream(side):
                steps(0, 1)
        for _ in range(5):
            with torch.cuda.stream(replays):
                graph.replay()
            with torch.cuda.stream(side):
                self.assertEqual(hits_of_a_step(), 5)
        self.settle()  # and no use of the one races with one of the other

    def test_running_out_voids_no_capture(self):
        seen = self.elsewhere(lambda: empty(200 * GIB))
        self.assertIsInstance(seen["error"], torch.OutOfMemoryError)


class Observers(CudaCase):
    def test_an_observer_may_ask_free_and_fail(self):
        heard = []

        def observe(device, asked, total, free):
            heard.append((device, asked))
            empty(MIB)
            raise ValueError("an observer's own")

        torch._C._cuda_attach_out_of_memory_observer(observe)
        for _ in range(2):
            with self.assertRaises((torch.OutOfMemoryError, ValueError, RuntimeError)):
                empty(200 * GIB)
        self.assertEqual(heard, [(0, 200 * GIB)] * 2)
        empty(MIB)


class Gpus(CudaCase):
    def test_each_gpu_follows_a_plan_of_its_own(self):
        for device in (0, 1):
            learn(device)
        hits = [berth_stats(device)["hits"] for device in (0, 1)]
        for _ in range(5):
            for device in (0, 1):
                steps(device, 1)
        # A mark ends the step of every GPU: one without requests in between keeps its place.
        self.assertEqual([berth_stats(device)["hits"] for device in (0, 1)], [before + 25 for before in hits])


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def plan(self, devices=1, **environment):
        """A plan of twenty steps for each device."""
        trace, plan = self.folder / "run.trace", self.folder / "run.plan"
        child(__file__, "run_steps", 20, devices, BERTH_MODE="record", BERTH_TRACE=trace, **environment)
        for device in range(devices):
            suffix = f".{device}" if device else ""
            subprocess.run(
                [BERTH, "plan", f"{trace}{suffix}", "-o", f"{plan}{suffix}"], check=True, capture_output=True
            )
        return plan

    def serve(self, plan, devices=1, **environment):
        output, errors = child(__file__, "run_steps", 20, devices, BERTH_MODE="serve", BERTH_PLAN=plan, **environment)
        return json.loads(output), warnings_in(errors)

    def test_a_plan_serves_where_it_was_made(self):
        stats, warnings = self.serve(self.plan())
        self.assertEqual(warnings, [])
        self.assertEqual(stats[0]["hits"], 95)  # all but the first step, which needs the pool

    def test_a_plan_for_another_gpu_is_one_warning(self):
        plan = self.plan(BERTH_STANDIN_GPU="A100-40")
        stats, warnings = self.serve(plan, BERTH_STANDIN_GPU="H100-80")
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("A100", warnings[0])
        self.assertEqual(stats[0]["hits"], 95)  # all but the first step, which needs the pool

    def test_a_plan_for_another_rank_is_one_warning(self):
        plan = self.plan(RANK=0, WORLD_SIZE=2)
        stats, warnings = self.serve(plan, RANK=1, WORLD_SIZE=2)
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("rank", warnings[0])
        self.assertEqual(stats[0]["hits"], 95)  # all but the first step, which needs the pool

    def test_several_gpus_serve_a_plan_each(self):
        stats, warnings = self.serve(self.plan(devices=2), devices=2)
        self.assertEqual(warnings, [])
        self.assertEqual([one["hits"] for one in stats], [95, 95])

    def test_a_damaged_plan_ends_the_program_before_it_starts(self):
        plan = self.plan()
        content = bytearray(plan.read_bytes())
        content[len(content) // 2] ^= 1
        plan.write_bytes(content)
        _, errors = child(__file__, "run_steps", 20, 1, exit_code=3, BERTH_MODE="serve", BERTH_PLAN=plan)
        self.assertIn("run.plan", errors)

    def test_memory_that_is_gone_before_the_arena_comes(self):
        plan = self.plan()
        output, errors = child(__file__, "run_in_the_rest", 8 * MIB, BERTH_MODE="serve", BERTH_PLAN=plan)
        self.assertEqual(json.loads(output)["hits_afterwards"], 5)
        self.assertLessEqual(len(warnings_in(errors)), 1, errors)

    def test_memory_that_is_gone_before_the_switch(self):
        output, errors = child(__file__, "learn_in_the_rest", BERTH_MODE="learn")
        self.assertEqual(json.loads(output)["refused"], 0)
        self.assertLessEqual(len(warnings_in(errors)), 1, errors)

    def test_a_forked_child_gets_errors_and_harms_nobody(self):
        for mode in ("learn", "record"):
            trace = self.folder / "fork.trace"
            output, _ = child(__file__, "fork", BERTH_MODE=mode, BERTH_TRACE=trace)
            self.assertEqual(json.loads(output), {"child": 0, "hits": 5 if mode == "learn" else 0})

    def test_children_of_a_parent_that_has_not_used_cuda_train(self):
        output, errors = child(__file__, "fork_before_cuda")
        self.assertEqual(errors, "")
        self.assertEqual(
            json.loads(output),
            {"children": [{"hits": 5, "grandchild": "refused"}] * 2, "parent": {"hits": 5, "grandchild": "refused"}},
        )

    def test_tensors_that_live_at_exit_are_no_trouble(self):
        for mode in ("learn", "record"):
            _, errors = child(__file__, "exit_with_tensors", BERTH_MODE=mode, BERTH_TRACE=self.folder / "exit.trace")
            self.assertEqual(errors, "")

    def test_a_late_installation_is_refused_and_names_the_calls(self):
        preloads = os.environ["LD_PRELOAD"].split(":")
        without = ":".join(one for one in preloads if pathlib.Path(one).name != pathlib.Path(LIBRARY).name)
        environment = {"LD_PRELOAD": without, "BERTH_MODE": None, "TEST_ALLOCATOR": "native"}
        output, _ = child(__file__, "install_late", LIBRARY, **environment)
        for name in ("set_device", "current_device", "get_device_name", "mem_get_info", "pin_memory", "install"):
            self.assertIn(name, output)
        self.assertEqual(output.splitlines()[0], "2")

    def test_another_libtorch_is_refused_by_its_version(self):
        source, stub = self.folder / "stub.c", self.folder / "stub.so"
        # What a libtorch says of itself: 2.15.
        source.write_text("unsigned long long aoti_torch_abi_version(void) { return (2ULL << 56) | (15ULL << 48); }\n")
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", stub, source], check=True)
        _, errors = child(__file__, "run_steps", 1, 1, exit_code=2, LD_PRELOAD=f"{stub}:{os.environ['LD_PRELOAD']}")
        self.assertRegex(errors, r"built for libtorch 2\.\d+, 2\.15 is loaded")

    def test_another_backend_of_pytorchs_is_refused_by_both_names(self):
        for backend in ("cudaMallocAsync", "native"):
            output, errors = child(
                __file__,
                "run_steps",
                3,
                1,
                exit_code=2,
                PYTORCH_ALLOC_CONF=f"expandable_segments:True, backend:{backend}",
            )
            self.assertEqual((output, len(errors.splitlines())), ("", 1), errors)
            self.assertIn(f"PYTORCH_ALLOC_CONF asks for backend:{backend}, and berth is to be the allocator", errors)

    def test_planned_blocks_count_what_was_asked_for_where_sizes_are_rounded(self):
        output, errors = child(__file__, "learn_rounded", PYTORCH_ALLOC_CONF="roundup_power2_divisions:4")
        self.assertEqual(warnings_in(errors), [])
        found = json.loads(output)
        self.assertEqual(found["requested"], [3 * MIB + 5000, 0])
        self.assertEqual(found["freed"], found["allocated"])

    def test_settings_of_pytorchs_that_berth_lacks_are_one_warning(self):
        _, errors = child(
            __file__, "run_steps", 3, 1, PYTORCH_ALLOC_CONF="max_split_size_mb:128,garbage_collection_threshold:0.8"
        )
        warnings = warnings_in(errors)
        self.assertEqual(len(warnings), 1, errors)
        self.assertIn("max_split_size_mb, garbage_collection_threshold", warnings[0])

    def test_a_setting_that_comes_later_is_heard_of(self):
        _, errors = child(__file__, "set_later")
        warnings = warnings_in(errors)
        self.assertEqual(len(warnings), 1, errors)
        self.assertIn("graph_capture_record_stream_reuse", warnings[0])

    def test_what_is_honoured_is_no_warning(self):
        settings = "expandable_segments:True,roundup_power2_divisions:4,per_process_memory_fraction:0.5"
        _, errors = child(__file__, "run_steps", 3, 1, PYTORCH_ALLOC_CONF=settings)
        self.assertEqual(warnings_in(errors), [])


# --- Scenarios ------------------------------------------------------------------------------------


def run_steps(count, devices):
    for device in range(int(devices)):
        steps(device, int(count))
    print(json.dumps([berth_stats(device) for device in range(int(devices))]))


def learn_rounded():
    names = ("requested_bytes.all.current", "requested_bytes.all.allocated", "requested_bytes.all.freed")
    empty(1)
    for _ in range(500):
        hits = berth_stats()["hits"]
        before = {name: stat(name) for name in names}
        kept = empty(3 * MIB + 5000)
        during = stat(names[0]) - before[names[0]]
        hit = berth_stats()["hits"] > hits
        del kept
        after = {name: stat(name) - before[name] for name in names}
        mark_step()
        if hit:
            break
        time.sleep(0.001)
    assert hit
    print(json.dumps({"requested": [during, after[names[0]]], "allocated": after[names[1]], "freed": after[names[2]]}))


def set_later():
    empty(MIB)
    torch._C._accelerator_setAllocatorSettings("graph_capture_record_stream_reuse:True")
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            empty(MIB)


def run_in_the_rest(left):
    torch.cuda.init()
    take_all_but(int(left))
    refused = 0
    for _ in range(5):
        small = [empty(MIB) for _ in range(3)]  # fits
        del small
        try:
            steps(0, 1)
        except torch.OutOfMemoryError:
            refused += 1
            gc.collect()
            mark_step()
    assert refused > 0
    runtime.berth_standin_take_elsewhere(0, 0)
    for _ in range(5):
        steps(0, 2)
    print(json.dumps({"hits_afterwards": hits_of_a_step()}))


def learn_in_the_rest():
    """Nothing is left on the GPU from the second step on, so that the switch must do with what the pool has."""
    steps(0, 2)
    take_all_but(0)
    refused = 0
    for _ in range(60):
        try:
            steps(0, 1)
        except torch.OutOfMemoryError:
            refused += 1
    print(json.dumps({"refused": refused, "hits": hits_of_a_step()}))


def fork():
    kept = [empty(MIB) for _ in range(3)]
    if os.environ["BERTH_MODE"] == "learn":
        learn()
    else:
        steps(0, 10)
    process = os.fork()
    if process == 0:
        code = 1
        try:
            kept.clear()  # frees do nothing
            empty(MIB)
        except RuntimeError:
            code = 0
        os._exit(code)
    _, status = os.waitpid(process, 0)
    assert torch.cuda.memory_allocated() == 3 * MIB
    print(json.dumps({"child": os.waitstatus_to_exitcode(status), "hits": hits_of_a_step()}))


def in_a_child(act):
    """What `act` answers in a forked child."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.write(writer, json.dumps(act()).encode())
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(process, 0)
    assert status == 0, status
    with os.fdopen(reader) as answer:
        return json.load(answer)


def refusal():
    try:
        torch._C._cuda_cudaCachingAllocator_raw_alloc(MIB, 0)  # which Python does not refuse before
    except RuntimeError as problem:
        return "refused" if "in a forked child of a process that had used it" in str(problem) else str(problem)
    return "served"


def train_and_fork():
    learn()
    return {"hits": hits_of_a_step(), "grandchild": in_a_child(refusal)}


def fork_before_cuda():
    torch.ones(10).is_pinned()  # and makes no context
    children = [in_a_child(train_and_fork) for _ in range(2)]
    print(json.dumps({"children": children, "parent": train_and_fork()}))


def exit_with_tensors():
    steps(0, 10)
    builtins.kept_for_ever = [empty(MIB) for _ in range(3)]
    builtins.kept_for_ever[0].record_stream(torch.cuda.Stream())


def install_late(library):
    torch.zeros(1, device="cuda")
    message = ctypes.create_string_buffer(2048)
    print(ctypes.CDLL(library).berth_torch_install_cuda(message, ctypes.c_size_t(len(message))))
    print(message.value.decode())


if __name__ == "__main__":
    if sys.argv[1] in globals():
        globals()[sys.argv[1]](*sys.argv[2:])
    else:
        BERTH, LIBRARY, COMPILER = sys.argv[1:4]
        unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
