"""What a piece of a program holds."""

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
