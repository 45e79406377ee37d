"""What tests of berth's CUDA allocator under torch share beside cuda_support: its counters, steps that it learns, children."""

import ctypes
import json
import os
import subprocess
import sys
import time

import torch
from cuda_support import KIB, MIB, empty, runtime, use


def berth_stats(device=0):
    runtime.berth_torch_cuda_stats.restype = ctypes.c_size_t
    text = ctypes.create_string_buffer(1 << 16)
    size = runtime.berth_torch_cuda_stats(device, text, len(text))
    assert 0 < size < len(text)
    return json.loads(text.value)


def mark_step():
    runtime.berth_torch_mark_step()


def steps(device, count):
    """Steps whose requests repeat, five each, on the current stream of a device."""
    with torch.cuda.device(device):
        for _ in range(count):
            kept = [empty(size) for size in (MIB, 2 * MIB, 300 * KIB)]
            kept.append(empty(5 * MIB))
            del kept[1]
            kept.append(empty(2 * MIB))
            for tensor in kept:
                use(tensor, torch.cuda.current_stream())
            del kept, tensor
            mark_step()


def hits_of_a_step(device=0):
    hits = berth_stats(device)["hits"]
    steps(device, 1)
    return berth_stats(device)["hits"] - hits


def learn(device=0):
    """From the first request of a GPU to steps that come from a plan."""
    empty_on(device)
    for _ in range(500):
        if hits_of_a_step(device) == 5:
            return
        time.sleep(0.001)
    raise AssertionError(f"nothing was learned: {berth_stats(device)}")


def empty_on(device):
    with torch.cuda.device(device):
        return empty(1)


def child(script, scenario, *arguments, exit_code=0, **environment):
    """What a scenario of a test script wrote to standard output and to standard error, in a process of its own.

    A variable of the environment that is None is not there.
    """
    there = {name: str(value) for name, value in {**os.environ, **environment}.items() if value is not None}
    result = subprocess.run(
        [sys.executable, "-B", script, scenario, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        env=there,
    )
    if result.returncode != exit_code:
        raise AssertionError(f"{scenario} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return result.stdout, result.stderr
