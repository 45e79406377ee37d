#!/usr/bin/env python3
"""berth under torch where calls of CUDA's fail: one error each, and all goes on afterwards."""

import contextlib
import ctypes
import gc
import itertools
import json
import sys
import unittest

import torch
from cuda_berth import child, learn, steps
from cuda_support import GIB, LAZY, MIB, CudaCase, empty, runtime, stat, use

NOT_PERMITTED, OUT_OF_MEMORY = 800, 2
FOREVER = 1 << 40
# What berth calls after its start. Not cudaGetDevice and cudaSetDevice: torch's own guards throw in their destructors where those fail.
FUNCTIONS = (
    "cudaThreadExchangeStreamCaptureMode cudaMemGetInfo cudaDeviceSynchronize cudaMalloc cudaFree "
    "cudaStreamGetId cudaStreamIsCapturing cudaStreamWaitEvent cudaEventCreateWithFlags cudaEventDestroy cudaEventRecord "
    "cudaEventQuery cudaEventSynchronize cudaMemcpyAsync cudaMemcpyPeerAsync cudaIpcGetMemHandle cuCtxPushCurrent cuCtxPopCurrent "
    "cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess cuMemExportToShareableHandle"
).split()
START_FUNCTIONS = [
    *FUNCTIONS,
    "cudaRuntimeGetVersion",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cuDeviceGet",
    "cudaGetDriverEntryPointByVersion",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuMemGetAllocationGranularity",
]

runtime.berth_standin_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64]
runtime.berth_standin_calls.argtypes = [ctypes.c_char_p]


@contextlib.contextmanager
def failing(name, n, error=NOT_PERMITTED, count=1):
    """The n-th call from now on fails, and count - 1 after it; says whether it was met."""
    met = []
    before = runtime.berth_standin_calls(name.encode())
    runtime.berth_standin_fail(name.encode(), n, error, count)
    try:
        yield met
    finally:
        if runtime.berth_standin_calls(name.encode()) - before >= n:
            met.append(True)
        runtime.berth_standin_clear_faults()
        runtime.cudaGetLastError()  # of torch's own calls


def check_consistent(case):
    """The counters are what a walk over all blocks finds."""
    stats, segments = torch.cuda.memory_stats(), [one for one in torch.cuda.memory_snapshot() if one["device"] == 0]
    live = [block for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"]
    case.assertEqual(stats["allocation.all.current"], len(live))
    case.assertEqual(stats["allocated_bytes.all.current"], sum(block["size"] for block in live))
    case.assertEqual(stats["reserved_bytes.all.current"], sum(segment["total_size"] for segment in segments))
    for segment in segments:
        case.assertEqual(segment["total_size"], sum(block["size"] for block in segment["blocks"]))


# --- Workloads: each takes what it asks for back ---------------------------------------------------


def grow_and_give_back():
    kept = [empty(size) for size in (100, 3 * MIB, 70 * MIB)]
    del kept[1]
    torch.cuda.empty_cache()


def use_on_two_streams():
    one, other = STREAMS
    with torch.cuda.stream(one):
        shared = empty(4 * MIB)
    use(shared, one)
    other.wait_stream(one)
    use(shared, other)
    shared.record_stream(other)
    del shared
    with torch.cuda.stream(one):
        for size in (4 * MIB, 5 * MIB):
            use(empty(size), one)


def run_out():
    try:
        empty(200 * GIB)
    except torch.OutOfMemoryError:
        return
    raise AssertionError("200 GiB were had")


def capture():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = torch.zeros(3 * MIB, dtype=torch.uint8, device="cuda") + 1
    graph.replay()
    torch.cuda.synchronize()
    del result
    graph.reset()


def share():
    tensor = empty(3 * MIB)
    _, handle, _, _, counter, counter_offset, _, _ = tensor.untyped_storage()._share_cuda_()
    assert handle
    torch.UntypedStorage._release_ipc_counter(
        counter, counter_offset, device="cuda:0"
    )  # as if another process were done with it
    del tensor
    torch.cuda.ipc_collect()


def copy_between():
    here = torch.zeros(1000, device="cuda:0")
    here.to("cuda:1")


WORKLOADS = {
    "growth and release": grow_and_give_back,
    "two streams": use_on_two_streams,
    "exhaustion": run_out,
    "capture": capture,
    "sharing": share,
    "another GPU": copy_between,
}


class FaultLoop(CudaCase):
    """SQLite's method: the n-th call fails, for n = 1, 2, .. until a run meets no fault; once, and from then on."""

    pace = LAZY

    def setUp(self):
        super().setUp()
        # torch asks for eight bytes where a capture begins and cannot bear to get none: there is room beside these.
        self.held = empty(100)
        for work in WORKLOADS.values():  # what is made once is made
            work()
        gc.collect()
        self.before = stat("allocated_bytes.all.current")

    def loop(self, name):
        work = WORKLOADS[name]
        all_met = refused = 0
        for function in FUNCTIONS:
            if (name, function) == ("capture", "cudaStreamIsCapturing"):
                continue  # where torch's own call of it fails, the graph's destructor ends the process, under any allocator
            errors = (NOT_PERMITTED, OUT_OF_MEMORY) if function in ("cudaMalloc", "cuMemCreate") else (NOT_PERMITTED,)
            for error, count in itertools.product(errors, (1, FOREVER)):
                for n in range(1, 200):
                    with self.subTest(function=function, n=n, error=error, count=count):
                        with failing(function, n, error, count) as met:
                            try:
                                work()
                            except RuntimeError as problem:
                                refused += 1
                                del problem
                            gc.collect()
                        torch.cuda.synchronize()
                        self.assertEqual(runtime.berth_standin_violations(), 0)
                        work()
                        torch.cuda.synchronize()
                        check_consistent(self)
                    if not met:
                        break
                    all_met += 1
        self.assertGreater(all_met, 3)
        self.settle()
        self.assertEqual(stat("allocated_bytes.all.current"), self.before)
        del self.held
        print(f"{name}: {all_met} faults met, {refused} refused", file=sys.stderr)

    def test_from_the_start_to_a_plan(self):
        for count in (1, FOREVER):
            function, n, met = START_FUNCTIONS[0], 1, 0
            while function:
                said = json.loads(
                    child(__file__, "start", function, n, count, BERTH_STANDIN_DEVICES=64)[0].splitlines()[-1]
                )
                self.assertEqual(said["failures"], [])
                function, n, met = said["function"], said["n"], met + said["met"]
            self.assertGreater(met, 20)
            print(f"start: {met} faults met", file=sys.stderr)


for workload in WORKLOADS:
    setattr(FaultLoop, f"test_{workload.replace(' ', '_')}", lambda self, name=workload: self.loop(name))


def start(function, n, count):
    """Every fault from `function`'s n-th call on meets the start of another GPU, until those are used up."""
    device, met_any, failures, n = 1, 0, [], int(n)
    functions = START_FUNCTIONS[START_FUNCTIONS.index(function) :]
    functions.append(None)
    while device < torch.cuda.device_count() and functions[0]:
        with failing(functions[0], n, NOT_PERMITTED, int(count)) as met:
            try:
                steps(device, 12)
            except RuntimeError as problem:
                del problem
            gc.collect()
        try:
            learn(device)
            with torch.cuda.device(device):
                torch.cuda.synchronize()
                assert runtime.berth_standin_violations() == 0
                assert torch.cuda.memory_allocated() == 0
        except Exception as problem:
            failures.append(f"{functions[0]} {n}: {problem}")
        device += 1
        if met:
            met_any, n = met_any + 1, n + 1
        else:
            functions.pop(0)
            n = 1
    print(json.dumps({"met": met_any, "function": functions[0], "n": n, "failures": failures}))


if __name__ == "__main__":
    torch.cuda.init()
    STREAMS = [torch.cuda.Stream(), torch.cuda.Stream()]
    if sys.argv[1:2] == ["start"]:
        start(*sys.argv[2:])
    else:
        unittest.main(verbosity=2)
