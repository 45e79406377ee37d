"""A partitioner for torch.compile: it plans which activations are saved for backward and which are recomputed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import operator
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Sequence, Union

from berth import _core
from berth._schedule import schedule
from berth._step_program import _bytes, _share

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

_FLOPS, _BANDWIDTH = (
    {"cuda": 1e5, "cpu": 1e2},
    {"cuda": 1.5e3, "cpu": 1e1},
)  # of a device, a nanosecond: what counts is their ratio
_LAUNCH = 1000  # nanoseconds that an operator takes at least


@dataclasses.dataclass(slots=True)
class Planned:
    """One graph that was partitioned. Sizes are bytes."""

    peak: int
    """The peak of forward and backward as planned, operator by operator, resident bytes included."""
    resident: int
    """Parameters, buffers and inputs."""
    base_peak: int
    """The peak without recomputation: each value is kept until its last use."""
    time_ns: int
    """Time as planned, by the model of times or by `runtime`."""
    base_time_ns: int
    """Time without recomputation."""
    recomputed: int
    """Operators that run a second time."""


class _Unsupported(Exception):
    """The reason, in words, why PyTorch's partitioner must partition a graph."""


def _tensors(value: object) -> "list[torch.Tensor]":
    import torch

    return [one for one in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(one, torch.Tensor)]


def _leaves(value: object) -> "Iterator[Node]":
    """The nodes in lists of lists."""
    from torch.fx import Node

    if isinstance(value, Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)


def _flat(value: object) -> list[object]:
    return [leaf for one in value for leaf in _flat(one)] if isinstance(value, (list, tuple)) else [value]


def _first(node: "Node") -> "Node":
    """The first argument of the node."""
    from torch.fx import Node

    first = node.args[0]
    assert isinstance(first, Node), f"{node.name} takes no node first"
    return first


def _operator(node: "Node") -> "Optional[torch._ops.OpOverload[Any, Any]]":
    import torch

    return node.target if isinstance(node.target, torch._ops.OpOverload) else None


def _makes_view(node: "Node") -> bool:
    """True if the node's result is a part of its first argument's bytes, or one of its results."""
    target = _operator(node)
    return node.target is operator.getitem or (
        target is not None
        and any(one.alias_info is not None and not one.alias_info.is_write for one in target._schema.returns)
    )


def _writes(node: "Node") -> bool:
    target = _operator(node)
    return node.op == "call_function" and target is not None and target._schema.is_mutable


def _is_result(node: "Node") -> bool:
    """True if the node is one of several results of an operator that made them."""
    return node.target is operator.getitem and not _makes_view(_first(node))


def _flops(node: "Node") -> float:
    import torch
    from torch.utils.flop_counter import flop_registry

    packet = getattr(node.target, "_overloadpacket", None)
    if packet not in flop_registry:
        return 0
    value = lambda one: one.meta["val"] if isinstance(one, torch.fx.Node) else one  # noqa: E731
    arguments, named = torch.fx.node.map_arg((node.args, node.kwargs), value)
    return float(flop_registry[packet](*arguments, **named, out_val=node.meta["val"]))


def _nanoseconds(node: "Node") -> int:
    """The time of an operator, by its operations and the bytes that it moves."""
    made = _tensors(node.meta["val"])
    device = "cuda" if any(one.device.type == "cuda" for one in made) else "cpu"
    moved = sum(one.nbytes for one in made) + sum(
        one.nbytes for source in node.all_input_nodes for one in _tensors(source.meta["val"])
    )
    return _LAUNCH + int(max(_flops(node) / _FLOPS[device], moved / _BANDWIDTH[device]))


class _Step:
    """A joint graph of AOTAutograd as a graph of berth's. Operator n is nodes[n]; one of them, without a node, hands over what the backward part
    begins with, and the last one takes the gradients."""

    def __init__(self, joint: "GraphModule", forward_outputs: int, runtime: "Callable[[Node], int]") -> None:
        self.nodes: "list[Optional[Node]]" = []
        self.storages: list[dict[str, Any]] = []
        self.operators: list[dict[str, Any]] = []
        self.control: list[list[int]] = []
        self.resident = 0
        self._place: "dict[tuple[Node, int], int]" = {}  # the storage of a node's result with that number
        self._runtime = runtime
        graph = joint.graph
        outputs = _flat(next(iter(graph.find_nodes(op="output"))).args)
        self.forward, self.backward = (
            list(_leaves(some)) for some in (outputs[:forward_outputs], outputs[forward_outputs:])
        )
        updates = [node for node in graph.nodes if _writes(node)]
        mutated = self._mutated_after_forward(joint, forward_outputs)
        updated = {_first(node) for node in updates}
        needed = self._ancestors([*self.forward, *updates])
        tangents = [node for node in graph.nodes if node.op == "placeholder" and "tangents" in str(node.target)]
        if not tangents:
            raise _Unsupported("it has no backward part")
        for node in graph.nodes:
            self._check(node)
            if node not in needed and not updated.union(mutated).isdisjoint(node.all_input_nodes):
                raise _Unsupported(f"{node.name} reads what the forward part writes to")
            if node.op == "placeholder" and node not in tangents:
                self._make(node, "resident")
                self.resident += self.storages[-1]["bytes"]
            elif node in updates:
                self._update(node)
            elif node.op == "call_function" and node in needed and not _makes_view(node):
                self._add(node, "forward")
        self.border = len(self.nodes)
        self._run(
            "loss",
            "loss",
            0,
            self.forward,
            [*(self._make(node, "step") for node in tangents), *(self._place[node, 0] for node in mutated)],
        )
        self.operators[-1]["traits"] = ["changes_state"]
        self.control += [[n, self.border] for n, node in enumerate(self.nodes) if node in updates]
        self.nodes.append(None)
        for node in graph.nodes:
            if node.op == "call_function" and node not in needed and not _makes_view(node):
                self._add(node, "backward")
        self._run("end", "optimizer", 0, self.backward, [])
        self.nodes.append(None)

    @staticmethod
    def _mutated_after_forward(joint: "GraphModule", forward_outputs: int) -> "list[Node]":
        """Inputs that AOTAutograd writes to once the forward part has ended, such as a batch norm's statistics: gone for who reads them later."""
        outputs = next(iter(joint.graph.find_nodes(op="output"))).meta.get("desc", [])[:forward_outputs]
        written = [one.mutated_input for one in outputs if hasattr(one, "mutated_input")]
        return [node for node in joint.graph.find_nodes(op="placeholder") if node.meta.get("desc") in written]

    @staticmethod
    def _ancestors(nodes: "Sequence[Node]") -> "set[Node]":
        found, left = set(nodes), list(nodes)
        while left:
            for source in left.pop().all_input_nodes:
                if source not in found:
                    found.add(source)
                    left.append(source)
        return found

    @staticmethod
    def _check(node: "Node") -> None:
        import torch

        if node.op not in ("placeholder", "call_function", "output"):
            raise _Unsupported(f"{node.name} is a {node.op}")
        if node.op == "output":
            return
        if node.op == "placeholder" and not str(node.target).startswith(("primals", "tangents")):
            raise _Unsupported(f"it has the input {node.target}")
        if node.meta.get("recompute") is not None:
            raise _Unsupported(f"{node.name} is to be recomputed by torch.utils.checkpoint")
        if node.target is not operator.getitem and node.op == "call_function" and _operator(node) is None:
            raise _Unsupported(f"{node.name} is no operator of a library")
        if _writes(node) and (
            node.target is not torch.ops.aten.copy_.default
            or _first(node).op != "placeholder"
            or node.meta.get("partitioner_tag") == "is_backward"
            or node.meta.get("autograd_backward", False)
        ):
            raise _Unsupported(f"{node.name} writes to what it is given")
        if "val" not in node.meta:
            raise _Unsupported(f"nothing is known of {node.name}")
        for value in _tensors(node.meta["val"]):
            if any(not isinstance(size, int) for size in (*value.shape, *value.stride())):
                raise _Unsupported(f"{node.name} has a shape that is not known")
        if not _tensors(node.meta["val"]):
            raise _Unsupported(f"{node.name} makes no tensor")

    @staticmethod
    def holder(node: "Node") -> "Node":
        """What can be saved in place of a view: its base, or of an operator with several results the one that it is a view of."""
        while _makes_view(node) and not _is_result(node):
            node = _first(node)
        return node

    def base(self, node: "Node") -> "tuple[Node, int]":
        """The node that made the bytes, and which of its results they are."""
        node = self.holder(node)
        return (_first(node), int(str(node.args[1]))) if _is_result(node) else (node, 0)

    def _make(self, node: "Node", kind: str, which: int = 0) -> int:
        value = node.meta["val"][which] if isinstance(node.meta["val"], (list, tuple)) else node.meta["val"]
        align = 512 if value.device.type == "cuda" else 64
        self.storages.append({"bytes": -(-value.untyped_storage().nbytes() // align) * align, "class": kind})
        self._place[node, which] = len(self.storages) - 1
        return len(self.storages) - 1

    def _add(self, node: "Node", phase: str) -> None:
        import torch

        value = node.meta["val"]
        made = (
            [self._make(node, "step", which) for which, one in enumerate(value) if isinstance(one, torch.Tensor)]
            if isinstance(value, (list, tuple))
            else [self._make(node, "step")]
        )
        self._run(str(node.target), phase, max(0, int(self._runtime(node))), node.all_input_nodes, made)
        target = _operator(node)
        if (target is not None and torch.Tag.nondeterministic_seeded in target.tags) or "seed" in str(node.target):
            self.operators[-1]["traits"] = ["random"]
        self.nodes.append(node)

    def _update(self, node: "Node") -> None:
        """What is written to an input, such as a batch norm's statistics: in the forward part, once."""
        target = self._place[_first(node), 0]
        self._run(str(node.target), "forward", _LAUNCH, node.all_input_nodes[1:], [])
        self.operators[-1]["alternatives"][0]["writes"] = [[target, 1]]
        self.operators[-1]["traits"] = ["changes_state"]
        self.nodes.append(node)

    def _run(self, name: str, phase: str, ns: int, read: "Sequence[Node]", made: list[int]) -> None:
        reads: dict[int, list[int]] = {}
        for node in read:
            storage = self._place[self.base(node)]
            kind = self.storages[storage]["class"]
            reads[storage] = [storage, 0 if kind == "resident" else 1, 0, self.storages[storage]["bytes"]]
        self.operators.append(
            {
                "name": name,
                "phase": phase,
                "alternatives": [
                    {
                        "ns": ns,
                        "workspace": 0,
                        "reads": list(reads.values()),
                        "writes": [[storage, 1] for storage in made],
                    }
                ],
            }
        )

    def graph(self) -> _core.Graph:
        return _core.Graph.from_json(
            json.dumps(
                {
                    "format": "berth-graph 1",
                    "storages": self.storages,
                    "operators": self.operators,
                    "control": self.control,
                }
            )
        )


class _Rebuilt:
    """The backward part in the order of a schedule: what it saves, and its graph."""

    def __init__(self, step: _Step, joint: "GraphModule", planned: _core.Schedule) -> None:
        self.joint = {node.name: node for node in joint.graph.nodes}
        steps = planned.steps
        runs = [int(target) for kind, target in zip(steps.kinds, steps.targets) if kind == 0]
        border = runs.index(step.border)
        self.step = step
        self.order = [node for one in runs[border:] if (node := step.nodes[one]) is not None]
        self.saved = self._find_saved()

    def _find_saved(self) -> "list[Node]":
        made: "set[Node]" = set()
        saved: "dict[Node, None]" = {}
        for reader in [*self.order, None]:
            for source in reader.all_input_nodes if reader is not None else self.step.backward:
                base, _ = self.step.base(source)
                if base not in made and not (base.op == "placeholder" and "tangents" in str(base.target)):
                    saved[self.step.holder(source)] = None
            if reader is not None:
                made.add(reader)
        return list(saved)

    def graph_of(self, module: "GraphModule") -> "GraphModule":
        """The module's inputs and outputs, and between them the operators in order."""
        import torch

        graph = torch.fx.Graph()
        there: "dict[str, Node]" = {}
        views: "dict[Node, list[str]]" = {}  # by what they are views of

        def find(node: "Node") -> "Node":
            if node.name not in there:
                assert _makes_view(node), f"{node.name} is neither saved nor made"
                there[node.name] = graph.node_copy(node, find)
                views.setdefault(self.step.base(node)[0], []).append(node.name)
            return there[node.name]

        for node in module.graph.find_nodes(op="placeholder"):
            there[node.name] = graph.node_copy(node)
        for node in self.order:
            copied = graph.node_copy(node, find)
            for name in views.pop(node, []):
                del there[name]
            there[node.name] = copied
            for user in node.users:  # of several results each is let go of by itself
                if _is_result(user):
                    there[user.name] = graph.node_copy(user, find)
        graph.node_copy(next(iter(module.graph.find_nodes(op="output"))), lambda node: find(self.joint[node.name]))
        return torch.fx.GraphModule(module, graph)


def _plan(step: _Step, budget: int, share: float, limit: float, engine: str) -> _core.Scheduled:
    """A plan within the budget; if none is found, the plan with the lowest peak."""
    graph = step.graph()
    whole = schedule(graph, 2**50, addresses=False, time_limit=limit, engine="release")
    wanted = step.resident + int(share * (whole.base_peak - step.resident)) if share > 0 else budget or 2**50
    found = schedule(graph, wanted, addresses=False, time_limit=limit, engine=engine)
    if found.schedule is not None:
        return found
    # The same search whatever was wanted, so that less never becomes more.
    least = schedule(graph, None, addresses=False, time_limit=2 * limit, engine=engine)
    best = whole if least.schedule is None or least.peak > whole.peak else least
    warnings.warn(
        f"berth: nothing was found within the memory budget of {wanted:,} bytes ({found.why_not}): the step takes {best.peak:,}",
        stacklevel=2,
    )
    return best


class Partitioner:
    """What partitioner() returns. It can be pickled where `runtime` can; torch's compiler does that with its options, for its caches."""

    def __init__(
        self, memory_budget: Union[int, str], time_limit: float, engine: str, runtime: "Optional[Callable[[Node], int]]"
    ) -> None:
        self._arguments = (memory_budget, time_limit, engine, runtime)
        self._share = _share(memory_budget)
        self._budget = 0 if self._share > 0 else _bytes(memory_budget)
        self.planned: list[Planned] = []

    def __call__(
        self, gm: "GraphModule", joint_inputs: Sequence[object], **options: Any
    ) -> "tuple[GraphModule, GraphModule]":
        import torch
        from torch._functorch import partitioners

        _, time_limit, engine, runtime = self._arguments
        gm.graph.eliminate_dead_code()
        gm.recompile()
        try:
            step = _Step(gm, options["num_fwd_outputs"], runtime or _nanoseconds)
        except _Unsupported as reason:
            warnings.warn(f"berth: a graph is left to PyTorch's partitioner: {reason}", stacklevel=2)
            return partitioners.min_cut_rematerialization_partition(gm, joint_inputs, **options)
        found = _plan(step, self._budget, self._share, time_limit, engine)
        self.planned.append(
            Planned(found.peak, step.resident, found.base_peak, found.time_ns, found.base_time_ns, found.recomputed)
        )
        assert found.schedule is not None
        rebuilt = _Rebuilt(step, gm, found.schedule)
        static = options.get("static_lifetime_input_indices") or []
        inputs = [node for node in gm.graph.find_nodes(op="placeholder") if str(node.target).startswith("primals")]
        forward, backward = partitioners._extract_fwd_bwd_modules(
            gm,
            list(rebuilt.saved),
            saved_sym_nodes=[],
            num_fwd_outputs=options["num_fwd_outputs"],
            static_lifetime_input_nodes=torch.utils._ordered_set.OrderedSet(inputs[k] for k in static),
        )
        return forward, rebuilt.graph_of(backward)

    def uuid(self) -> str:
        *plain, runtime = self._arguments
        return hashlib.sha256(
            repr((_core.__file__, *plain, None if runtime is None else id(runtime))).encode()
        ).hexdigest()

    def __reduce__(self) -> "tuple[Any, ...]":
        return _restored, (*self._arguments, self.planned)


def _made(*arguments: Any) -> Partitioner:
    """One that torch takes for its own CustomPartitionerFn; here, for `import berth` imports no torch."""
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    CustomPartitionerFn.register(Partitioner)
    return Partitioner(*arguments)


def _restored(*state: Any) -> Partitioner:
    *arguments, planned = state
    made = _made(*arguments)
    made.planned = planned
    return made


def partitioner(
    memory_budget: Union[int, str],
    *,
    time_limit: float = 2.0,
    engine: str = "auto",
    runtime: "Optional[Callable[[Node], int]]" = None,
) -> Partitioner:
    """Replaces torch.compile's partitioner: it decides which activations are saved and which are recomputed, and their order.

        compiled = torch.compile(model, options={"custom_partitioner_fn": berth.partitioner("60%")})

    For a backend of your own: `aot_autograd(..., partition_fn=berth.partitioner("60%"))`.

    memory_budget  the peak of forward and backward in bytes, parameters and inputs included; or a share such as "60%"
                   of the peak without recomputation, parameters and inputs not counted
    time_limit     seconds for each plan
    engine         one of berth.schedule_engines()
    runtime        a function from a node to its nanoseconds; None: a model of its operations and bytes

    The peak is counted operator by operator, without fusion. A compiler that fuses needs less. If nothing fits, the
    plan with the lowest peak is used, with a warning. `planned` of the result lists the plan of each graph. Random
    operators are never recomputed.

    Graphs with unknown shapes, operators that write to their inputs, or torch.utils.checkpoint are not supported.
    PyTorch's own partitioner partitions them, without this budget, and a warning names the reason. Raises UsageError for a
    wrong budget.
    """
    return _made(memory_budget, time_limit, engine, runtime)
