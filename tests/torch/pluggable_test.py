"""libberth.so under torch.cuda.memory.CUDAPluggableAllocator, on the stand-in: LIBBERTH BERTH_PROGRAM.

An allocator can be changed once a process, so each case is a process of its own.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

OK, USAGE, INPUT = 0, 2, 3
STEPS = 60
FIELDS = (
    "requests",
    "frees",
    "hits",
    "misses",
    "live_bytes",
    "live_peak_bytes",
    "reserved_bytes",
    "reserved_peak_bytes",
    "arena_bytes",
    "arena_bound_bytes",
    "steps",
    "plans_learned",
    "driver_calls",
    "misuses",
)


class Statistics(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in FIELDS]


class Berth:
    """The C ABI, and the lines of csrc/capi/README.md that make it PyTorch's allocator."""

    def __init__(self, library, malloc="berth_malloc_or_throw"):
        import torch

        self.torch, self.abi = torch, ctypes.CDLL(library)
        pluggable = torch.cuda.memory.CUDAPluggableAllocator(library, malloc, "berth_free")
        hooks, address = pluggable.allocator(), lambda function: ctypes.cast(function, ctypes.c_void_p).value
        hooks.set_record_stream_fn(address(self.abi.berth_use_on_stream))
        hooks.set_reset_fn(address(self.abi.berth_trim_all))
        hooks.set_begin_allocate_to_pool(address(self.abi.berth_begin_pool))
        hooks.set_end_allocate_to_pool_fn(address(self.abi.berth_end_pool))
        hooks.set_release_pool(address(self.abi.berth_release_pool))
        torch.cuda.memory.change_current_allocator(pluggable)
        self.abi.berth_last_error.restype = ctypes.c_char_p
        self.abi.berth_malloc.restype = ctypes.c_void_p

    def statistics(self, device=0):
        result = Statistics(size=ctypes.sizeof(Statistics))
        self.abi.berth_get_statistics(device, ctypes.byref(result))
        return {name: getattr(result, name) for name in FIELDS}

    def mark_step(self):
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        assert self.abi.berth_mark_step(0, stream) == OK

    def release(self, block, size=0, device=0):
        """The code and the text of a free."""
        code = self.abi.berth_release(ctypes.c_void_p(block), ctypes.c_size_t(size), device, None)
        return code, self.abi.berth_last_error().decode() if code else ""


def train(library, malloc):
    """A small network, STEPS steps of it; the counters of the second half, and what lives at the end."""
    berth = Berth(library, malloc)
    torch = berth.torch
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    data = torch.randn(32, 64).cuda()
    for step in range(STEPS):
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        berth.mark_step()
        if step == STEPS // 2:
            middle = berth.statistics()
    after = berth.statistics()
    del model, optimizer, data
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    end = berth.statistics()
    print(
        json.dumps(
            {
                **after,
                "late_hits": after["hits"] - middle["hits"],
                "late_misses": after["misses"] - middle["misses"],
                "live_bytes": end["live_bytes"],
                "unfreed": end["requests"] - end["frees"],
            }
        )
    )


def misuse(library):
    berth = Berth(library)
    torch = berth.torch
    nothing = torch.empty(0, device="cuda")
    assert nothing.data_ptr() == 0
    del nothing
    assert berth.abi.berth_malloc(ctypes.c_size_t(0), 0, None) is None

    tensor = torch.empty(1000, dtype=torch.uint8, device="cuda")
    block = tensor.data_ptr()
    assert berth.release(block, device=1)[0] == USAGE
    torch.empty(8, device="cuda:1")
    for code, text, words in (
        (*berth.release(block, device=1), "no memory of device 1"),
        (*berth.release(block + 512), "no live block"),
        (*berth.release(id(tensor)), "no memory of device 0"),
        (*berth.release(block, size=999), "it has 1000"),
        (*berth.release(block, device=70), "device 70"),
    ):
        assert code == USAGE and words in text, (code, text, words)
    assert berth.abi.berth_load_plan(0, b"/nowhere/at.plan") == INPUT
    live = berth.statistics()["live_bytes"]
    assert live == 1024, live
    del tensor
    assert berth.statistics()["live_bytes"] == 0 == berth.statistics(1)["live_bytes"]
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:
        assert "1.0 PiB" in str(error) or str(1 << 50) in str(error), error
    else:
        raise AssertionError("a petabyte was handed out")


def streams(library):
    berth = Berth(library)
    torch, runtime = berth.torch, ctypes.CDLL(None)
    import cuda_support as support

    runtime.berth_standin_set_pace(support.LAZY)
    size, side = 8 * support.MIB, torch.cuda.Stream()
    warm = support.empty(size)
    address = warm.data_ptr()
    del warm
    tensor = support.empty(size)
    assert tensor.data_ptr() == address
    side.wait_stream(torch.cuda.current_stream())
    support.use(tensor, side)
    tensor.record_stream(side)
    del tensor
    other = support.empty(size)
    assert other.data_ptr() != address
    support.use(other, torch.cuda.current_stream())
    side.synchronize()
    del other
    blocks = [support.empty(size) for _ in range(2)]
    assert address in [block.data_ptr() for block in blocks]
    assert runtime.berth_standin_violations() == 0
    del blocks
    assert berth.statistics()["reserved_bytes"] >= 2 * size
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert berth.statistics()["reserved_bytes"] == 0


def graphs(library):
    berth = Berth(library)
    torch, runtime = berth.torch, ctypes.CDLL(None)
    import cuda_support as support

    side, replays = torch.cuda.Stream(), torch.cuda.Stream()
    sizes = [support.MIB, 3 * support.MIB, 300 * support.KIB, 5 * support.MIB]

    def step():
        """The blocks of one, each freed before the next but for the last, which the caller may keep."""
        blocks = []
        for size in sizes:
            tensor = support.empty(size)
            support.use(tensor, side)
            blocks.append((tensor.data_ptr(), size))
        return blocks, tensor

    def hits_of_a_step():
        before = berth.statistics()["hits"]
        with torch.cuda.stream(side):
            blocks, _ = step()
            berth.mark_step()
        return blocks, berth.statistics()["hits"] - before

    for _ in range(500):
        if hits_of_a_step()[1] == len(sizes):
            break
        time.sleep(0.001)
    else:
        raise AssertionError(f"nothing was learned: {berth.statistics()}")
    runtime.berth_standin_set_pace(support.RANDOM)
    for emptied in (False, True, False):  # each graph after the one before is gone
        graph = torch.cuda.CUDAGraph()
        before = berth.statistics()["hits"]
        if emptied:  # as torch.cuda.graph() does before it begins
            with torch.cuda.graph(graph, stream=side):
                captured, kept = step()
        else:
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                graph.capture_begin()
                captured, kept = step()
                graph.capture_end()
            assert berth.statistics()["hits"] > before  # bytes of the plan are the graph's
        del kept
        for _ in range(5):
            with torch.cuda.stream(replays):
                graph.replay()
            for address, size in hits_of_a_step()[0]:
                assert all(address + size <= first or first + length <= address for first, length in captured)
            torch.cuda.empty_cache()
        graph.reset()
        assert hits_of_a_step()[1] == len(sizes)
    torch.cuda.synchronize()
    assert runtime.berth_standin_violations() == 0


class Pluggable(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def child(self, case, *arguments, **settings):
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("BERTH_") or name.startswith("BERTH_STANDIN")
        }
        done = subprocess.run(
            [sys.executable, "-B", __file__, case, LIBRARY, *arguments],
            capture_output=True,
            text=True,
            env={**environment, "TEST_ALLOCATOR": "pluggable", **settings},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout) if done.stdout else None

    def check_nothing_leaked(self, result):
        self.assertEqual((result["live_bytes"], result["unfreed"], result["misuses"]), (0, 0, 0))

    def test_training_is_learned_and_served(self):
        result = self.child("train", "berth_malloc_or_throw", BERTH_MODE="learn")
        self.assertGreaterEqual(result["plans_learned"], 1)
        self.assertGreater(result["late_hits"], 0)
        self.assertEqual(result["late_misses"], 0)
        self.assertEqual(result["arena_bytes"], result["arena_bound_bytes"])
        self.check_nothing_leaked(result)

    def test_training_is_recorded_planned_and_served(self):
        trace, plan = str(self.folder / "mlp.trace"), str(self.folder / "mlp.plan")
        recorded = self.child("train", "berth_malloc", BERTH_MODE="record", BERTH_TRACE=trace)
        self.assertEqual(recorded["hits"], 0)
        self.check_nothing_leaked(recorded)
        done = subprocess.run([PROGRAM, "plan", trace, "-o", plan], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        served = self.child("train", "berth_malloc", BERTH_MODE="serve", BERTH_PLAN=plan)
        self.assertEqual(served["requests"], recorded["requests"])
        self.assertGreater(served["late_hits"], 0)
        self.assertEqual(served["late_misses"], 0)
        self.check_nothing_leaked(served)

    def test_misuse_is_a_code_and_a_text(self):
        self.child("misuse")

    def test_a_recorded_stream_is_waited_for_and_the_cache_can_be_emptied(self):
        self.child("streams", BERTH_MODE="learn")

    def test_a_replay_meets_no_byte_that_is_reused(self):
        self.child("graphs", BERTH_MODE="learn")


if __name__ == "__main__":
    if sys.argv[1] in ("train", "misuse", "streams", "graphs"):
        globals()[sys.argv[1]](*sys.argv[2:])
    else:
        LIBRARY, PROGRAM = sys.argv[1:]
        unittest.main(argv=[sys.argv[0], "-q"])
