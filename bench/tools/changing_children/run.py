"""Runs a program of a module's PROGRAMS under the allocator that is there and says what each step took."""

import ctypes
import gc
import importlib
import os
import pathlib
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gpu_children"))
import child  # noqa: E402

parser = child.parser(__doc__)
parser.add_argument("--programs", required=True, help="the module")
parser.add_argument("--program", required=True)
parser.add_argument("--size", choices=["full", "small"], default="full")
parser.add_argument("--steps", type=int, help="no more than these")
parser.add_argument("--pace-ms", type=float, default=0, help="a step takes at least so long")
parser.add_argument("--snapshot", help="where the history of its requests goes, as PyTorch keeps it")
parser.add_argument("--settle", type=float, default=0, help="wait so many seconds for a plan, from the fourth step on")
parser.add_argument("--limit-bytes", type=int, default=0, help="of the device, for this process")
arguments = parser.parse_args()

import torch  # noqa: E402

programs = importlib.import_module(arguments.programs)

# What waits until the device is done. What brings memory or takes it back, cudaFree too, the stand-in counts by its table of costs.
WAITS = [
    "cudaFree",
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
]

child.must_be(child.wanted_allocator())
warnings.simplefilter("ignore")
runtime = ctypes.CDLL(None)
runtime.berth_standin_calls.restype = runtime.berth_standin_memory_calls.restype = ctypes.c_uint64
runtime.berth_standin_driver_microseconds.restype = ctypes.c_double
runtime.berth_standin_peak.restype = runtime.berth_standin_used.restype = ctypes.c_size_t
function, does, _, settles = programs.PROGRAMS[arguments.program]
torch.manual_seed(1)
if arguments.snapshot:
    torch.cuda.memory._record_memory_history(context=None)
torch.cuda.synchronize()  # makes the context
held_by_runtime = runtime.berth_standin_used(0)
if arguments.limit_bytes:
    torch.cuda.set_per_process_memory_fraction(arguments.limit_bytes / torch.cuda.get_device_properties(0).total_memory)


def counted():
    stats = child.berth_stats()
    waits = sum(runtime.berth_standin_calls(name.encode()) for name in WAITS)
    return {
        "memory_calls": runtime.berth_standin_memory_calls(),
        "waits": waits,
        "driver_us": runtime.berth_standin_driver_microseconds(),
        **{
            name: stats.get(name, 0)
            for name in (
                "requests",
                "hits",
                "hits_bucket",
                "lent",
                "misses_size",
                "misses_busy",
                "misses_lane",
                "unplanned",
                "realigned",
                "plans_learned",
                "driver_calls",
            )
        },
    }


def wait_for_plan():
    """Plans are made beside the program, whose steps are short here: waits where most of a step missed."""
    if arguments.settle > 0 and steps[-1]["hits"] < 0.9 * steps[-1]["requests"]:
        time.sleep(min(arguments.settle, 1))
        arguments.settle -= 1


steps, problem, before, begun = [], None, counted(), time.monotonic()
try:
    for kind in function(arguments.size):
        after = counted()
        steps.append({"kind": kind, **{name: after[name] - before[name] for name in after}})
        if arguments.steps and len(steps) == arguments.steps:
            break
        time.sleep(max(0.0, arguments.pace_ms / 1000 - (time.monotonic() - begun)))
        if len(steps) >= 4:
            wait_for_plan()
        before, begun = counted(), time.monotonic()
except torch.OutOfMemoryError as error:
    problem = str(error).split("\n")[0]
memory = torch.cuda.memory_stats()
if arguments.snapshot:
    torch.cuda.memory._dump_snapshot(arguments.snapshot)
result = {
    "program": arguments.program,
    "does": does,
    "settles": settles,
    "steps": steps,
    "out_of_memory": problem,
    "allocated_peak_bytes": memory["allocated_bytes.all.peak"],
    "reserved_peak_bytes": memory["reserved_bytes.all.peak"],
    "device_peak_bytes": runtime.berth_standin_peak(0) - held_by_runtime,
    "violations": runtime.berth_standin_violations(),
    "stats": child.berth_stats(),
}
# What is kept where the program is done with its tensors and says so.
function = None
gc.collect()
torch.cuda.empty_cache()
result["left_allocated_bytes"], result["left_reserved_bytes"] = (
    torch.cuda.memory_allocated(),
    torch.cuda.memory_reserved(),
)
child.write(arguments, result)
sys.stdout.flush()
if os.environ.get("BERTH_MODE") != "record":  # whose trace is closed at the end
    os._exit(0)  # what a program leaves to the end of its process is not measured
