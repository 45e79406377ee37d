"""What a piece of a program holds."""

import ctypes
import os

import torch


def peak_of(body):
    """Most bytes that it holds beside those that were there when it began, as libtorch's allocator on the CPU counts them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        body()
    live = most = 0
    events = (one for one in profile.profiler.kineto_results.events() if one.name() == "[memory]")
    for one in sorted(events, key=lambda one: one.start_ns()):
        live += one.nbytes()
        most = max(most, live)
    return most


def peak_of_step(draw, step):
    """The same of step(draw()), where draw()'s result is there already. Sees no profiler: under one a step program runs its step as written. Takes two
    steps, since the second one frees what the first one made."""
    library = ctypes.CDLL(os.environ["STEP_PEAK_LIBRARY"])
    library.berth_bench_step_peak.restype = ctypes.c_longlong
    library.berth_bench_see_memory()
    step(draw())
    drawn = draw()
    library.berth_bench_begin_step()
    step(drawn)
    return library.berth_bench_step_peak()
