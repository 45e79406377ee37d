"""Tells the running step program of what libraries of torch do behind its operators: profilers, RPC and compiled models."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Iterator

import torch

_Method = Callable[..., Any]


def _found() -> Iterator[tuple[Any, str, str, str]]:
    """Owner and name of each function, how the step is told, and why."""
    # A profiler asks for the pointers of what operators take before the step sees these.
    yield torch.autograd.profiler, "_enable_profiler", "begin_profile", "a profiler began in the step"
    traces = sys.modules.get("torch.profiler.profiler")
    yield traces, "_enable_execution_trace_observer", "begin_profile", "a profiler began in the step"
    # Messages are made of pointers.
    rpc = sys.modules.get("torch.distributed.rpc.api")
    for name in list(vars(rpc)) if rpc else ():
        if name.startswith("_invoke_"):
            yield rpc, name, "run_as_written", "RPC sends tensors to another process"
    # Kernels take pointers, those of the model's constants as well.
    for runner in vars(getattr(torch._C, "_aoti", object)).values():
        for name in ("run", "boxed_run"):
            if isinstance(runner, type) and name in vars(runner):
                yield runner, name, "run_as_written", "a model that was compiled ahead of time runs"


def watch_libraries(say: Callable[..., None], functions: list[tuple[Any, str, Any]]) -> None:
    """Wraps these functions, and adds what stood there."""

    def telling(function: _Method, how: str, why: str) -> _Method:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            say(how, why)
            return function(*args, **kwargs)

        return call

    for owner, name, how, why in list(_found()):
        if function := vars(owner).get(name) if owner else None:
            functions.append((owner, name, function))
            setattr(owner, name, telling(function, how, why))
