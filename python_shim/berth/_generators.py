"""Generators of random numbers in steps: reads of their states, and seeds."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch.utils.weak import WeakIdKeyDictionary

from berth._streams import MethodsOf

_Method = Callable[..., Any]

# Methods by which the state of a generator is read. torch.get_rng_state() calls the first one.
_STATES = ("get_state", "clone_state", "graphsafe_get_state", "get_offset", "__reduce__")
_SEEDS = ("manual_seed", "seed")
_generators = MethodsOf(torch.Generator)
# States as generators gave them. Not an attribute of theirs: copies and files would have that, too.
_given_states: Any = WeakIdKeyDictionary()


def watch_generators(
    say: Callable[..., None], tell: Callable[..., None], functions: list[tuple[Any, str, Any]]
) -> None:
    """Has methods of generators tell the step; appends to `functions` what stood in their place."""

    def state(method: _Method) -> _Method:
        @functools.wraps(method)
        def read(self: torch.Generator, *args: Any, **kwargs: Any) -> Any:
            say("read_generators")
            state = method(self, *args, **kwargs)
            if isinstance(state, torch.Tensor):
                _given_states[state] = True
            return state

        return read

    def set_state(method: _Method) -> _Method:
        @functools.wraps(method)
        def set_state(self: torch.Generator, new_state: torch.Tensor) -> Any:
            # As the generator gave it no operator has made it, or written it. Of inference tensors nobody counts that.
            if isinstance(new_state, torch.Tensor) and (
                new_state.is_inference() or new_state._version > 0 or new_state not in _given_states
            ):
                tell(new_state, "read_bytes")
            return method(self, new_state)

        return set_state

    def set_pickled(method: _Method) -> _Method:
        @functools.wraps(method)
        def set_pickled(self: torch.Generator, state: Any) -> Any:
            for one in state if isinstance(state, tuple) else ():
                if isinstance(one, torch.Tensor):  # a copy that an operator made, as copy.deepcopy() does
                    tell(one, "read_bytes")
            return method(self, state)

        return set_pickled

    def seed(method: _Method) -> _Method:
        @functools.wraps(method)
        def seed(self: torch.Generator, *args: Any, **kwargs: Any) -> Any:
            say("seed_generators")
            return method(self, *args, **kwargs)

        return seed

    for names, wrap in (
        (_STATES, state),
        (("set_state",), set_state),
        (("__setstate__",), set_pickled),
        (_SEEDS, seed),
    ):
        for name in names:
            if method := torch.Generator.__dict__.get(name):
                functions.append((_generators, name, method))
                setattr(_generators, name, wrap(method))
