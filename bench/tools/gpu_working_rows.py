"""Rows of bench/gpu: whether berth works on a GPU: start, driver calls, the device, ends of a program, graphs, sharing."""

import json
import re

from gpu_rows import Group, Skip, decided, failed, measured, passed, ran, size
from training import ROOT, Failure, mebibytes

# ----------------------------------------------------------------------------------------------- does it run at all

start = Group("start", "whether it runs at all")


@start.row("doctor", "what the driver can do, and what berth takes of it", wants=10, point=4)
def doctor(bench):
    found = json.loads(bench.cuda([bench.program("berth"), "doctor", "--device", "--json"]))
    device = found["devices"][0]
    works = ", ".join(
        f"{one['name']}: {'not promised' if not one['promised'] else 'works' if one['works'] else one['error']}"
        for one in device["tries"]
    )
    return passed(f"{device['name']}, CUDA {found['driver']}: {device['why']}; {works}", **found)


def trains_equally(environment):
    def run(bench):
        given = ["--model", "mlp", "--deterministic", "--weights", "--steps", 20, "--warmup", 0, *size(bench)]
        ours = bench.child("train", *given, environment={"BERTH_MODE": "learn", **environment})
        native = bench.child("train", *given, environment={"BERTH_MODE": "off"})
        equal = ours["losses_hex"] == native["losses_hex"] and ours["weights_sha256"] == native["weights_sha256"]
        stats = ours["stats"]
        text = (
            f"{ours['description']}: {stats['hits']} hits of {stats['requests']} requests, {stats['driver_calls']} driver calls, "
            f"{stats['device_memory']}; losses and weights {'not compared' if bench.standin else 'equal' if equal else 'DIFFER'}"
        )
        return decided(
            bench,
            equal,
            text,
            equal=None if bench.standin else equal,
            stats=stats,
            native_loss=native["last_loss"],
            loss=ours["last_loss"],
        )

    return run


start.row(
    "train",
    "an MLP: allocated, freed, trained, planned; losses and weights are the native allocator's",
    wants=50,
    point=1,
)(trains_equally({}))

# ---------------------------------------------------------------------------------------------------- what calls cost

cost = Group("cost", "what the driver's calls cost, and which of them wait for the device")


@cost.row(
    "calls",
    "by live handles, by the size of a handle, for several mappings at once; Device's own calls; while the device copies",
    wants=60,
    point=7,
)
def page_costs(bench):
    small = ["--smoke"] if bench.small else []
    found = json.loads(bench.cuda([bench.program("bench/page_costs"), *small]))
    most = max(map(int, found["us"]["alias"]))
    each = ", ".join(
        f"{call} {found['us'][call]['1']:.1f} us alone, {found['us'][call][str(most)] / most:.2f} us a page of {most}"
        for call in ("commit", "alias", "decommit")
    )
    handles = ", ".join(
        f"{count}: {us:.1f}"
        for count, us in sorted(found["live_handles_us"]["cuMemCreate"].items(), key=lambda one: int(one[0]))
    )
    large = ", ".join(f"{call} {times[str(most)]:.1f}" for call, times in found["one_handle_us"].items())
    waits = [name for name, one in found["busy"]["calls"].items() if one["waited"] > found["rounds"] / 2]
    event = "event: {record:.2f} us to record, {query:.2f} us to ask, {wait:.1f} us to wait".format(**found["event_us"])
    waiting = "" if bench.standin else f"; these wait for the device: {', '.join(waits) or 'none'}"
    return measured(
        f"cuMemCreate by live handles, us: {handles}; one handle of {most} pages, us: {large}; {each}; {event}{waiting}",
        **found,
    )


# ------------------------------------------------------------------------------------------------------ the device

device = Group("device", "the cases of tests/cuda/gpu_test.cc, each a process")


def device_case(case):
    def run(bench):
        said = bench.cuda(
            [bench.program("tests/cuda/berth_cuda_gpu_test"), case.replace(",", "\\,"), "--durations", "yes"],
            {"BERTH_MODE": "off"},
            copies=True,
            accept=(0, 77),
        )
        if bench.last_code == 77:
            raise Failure(f"the test finds no GPU: {bench.last_errors.strip() or said.strip()}")
        if "No test cases matched" in said + bench.last_errors or "No test ran" in said:
            raise Failure(f"the program has no case '{case}': it was built from other sources")
        figures = [line.removeprefix("figure: ") for line in said.splitlines() if line.startswith("figure: ")]
        return passed("; ".join([said.strip().splitlines()[-1], *figures]), figures=figures)

    return run


CASES = re.findall(r'TEST_CASE\("([^"]+)",\s*"\[gpu\]\[(\w+)\]"\)', (ROOT / "tests/cuda/gpu_test.cc").read_text())
for number, (case, topic) in enumerate(CASES, 1):
    device.row(f"{number} {topic}", case, wants=8, point=7 if topic == "alias" else 4)(device_case(case))

# ------------------------------------------------------------------------------------------------- the ends of a program

ends = Group("ends", "exit, fork, signals")


@ends.row("exit", "blocks, streams and graphs that outlive main", wants=20, point=5)
def exits(bench):
    bench.child("lifecycle", "--how", "exit", environment={"BERTH_MODE": "learn"})
    words = bench.last_errors.strip()
    return (
        failed(f"it complains: {words.splitlines()[-1]}", tail=words.splitlines())
        if words
        else passed("silent, exit code 0")
    )


@ends.row("fork", "frees in a forked child reach no driver, and the parent goes on", wants=20, point=5)
def forks(bench):
    found = bench.child("lifecycle", "--how", "fork", environment={"BERTH_MODE": "learn"})
    good = found["child_exit_code"] == 0 and found["sums_right"] and found["kept_right"]
    text = f"the child ended with {found['child_exit_code']}, the parent's values are {'right' if found['sums_right'] and found['kept_right'] else 'WRONG'}"
    return passed(text, **found) if good else failed(text, **found)


@ends.row(
    "signals",
    "a program that trains ends by SIGTERM, by Ctrl-C as an exception, by SIGKILL; its memory comes back",
    wants=40,
    point=5,
)
def signals(bench):
    found = bench.child("lifecycle", "--how", "signals", environment={"BERTH_MODE": "learn"})
    wrong = [
        f"{one['signal']}: ended with {one['exit_code']} instead of {one['wanted']}, {mebibytes(one['kept_bytes'])} kept"
        for one in found["ends"]
        if one["exit_code"] != one["wanted"] or one["kept_bytes"] > 64 << 20
    ]
    slowest = max(one["seconds"] for one in found["ends"])
    text = "; ".join(wrong) or f"{len(found['ends'])} signals, the slowest end after {slowest:.2f} s"
    return failed(text, **found) if wrong else passed(text, **found)


# --------------------------------------------------------------------------------------------------------------- graphs

graphs = Group("graphs", "captured graphs: losses beside the native allocator's")


def graphed(how):
    def run(bench):
        if how == "compile":
            try:
                bench.run(
                    [
                        bench.python,
                        "-c",
                        "import importlib.util as u; import sys; sys.exit(0 if u.find_spec('triton') else 3)",
                    ]
                )
            except Failure:
                raise Skip("no triton here, which torch.compile needs") from None
            if bench.standin:
                raise Skip("triton's kernels do not load on the stand-in")
        given = ["--how", how, "--steps", 6 if bench.small else 30, *size(bench)]
        ours = bench.child("graphs", *given, environment={"BERTH_MODE": "learn"})
        theirs = bench.child("graphs", *given, environment={"BERTH_MODE": "off"})
        same = ours["losses_hex"] == theirs["losses_hex"]
        return decided(
            bench,
            same,
            f"{len(ours['losses_hex'])} losses {'not compared' if bench.standin else 'equal' if same else 'DIFFER'}; reserved "
            f"{mebibytes(ours['reserved_peak_bytes'])} under berth, {mebibytes(theirs['reserved_peak_bytes'])} under the native allocator",
            berth={key: ours[key] for key in ("reserved_peak_bytes", "allocated_peak_bytes")},
            native={key: theirs[key] for key in ("reserved_peak_bytes", "allocated_peak_bytes")},
        )

    return run


graphs.row("graph", "a whole step in one CUDAGraph, memory asked for beside it", wants=30, point=5)(graphed("graph"))
graphs.row("callables", "make_graphed_callables", wants=30, point=5)(graphed("callables"))
graphs.row(
    "compile", "torch.compile, mode reduce-overhead: states of the pool are saved and restored", wants=80, point=5
)(graphed("compile"))

# -------------------------------------------------------------------------------------------------------------- sharing

sharing = Group("sharing", "CUDA IPC, other GPUs, NCCL")


def shared(consumer):
    def run(bench):
        found = bench.child(
            "sharing", "--consumer", consumer, "--rounds", 3 if bench.small else 40, environment={"BERTH_MODE": "learn"}
        )
        good = found["exit_code"] == 0 and not found["wrong"]
        values = "values not compared" if bench.standin else f"{len(found['wrong'])} wrong"
        text = f"{found['rounds']} tensors shared with a process under '{found['consumer']}', {values}"
        if bench.standin:
            return ran(text, **found) if found["exit_code"] == 0 else failed(text, **found)
        return passed(text, **found) if good else failed(text, **found)

    return run


sharing.row("berth", "tensors of virtual memory, shared with a process that runs berth", wants=30, point=4)(
    shared("same")
)
sharing.row("native", "the same with a process under PyTorch's own allocator", wants=30, point=4)(shared("native"))


@sharing.row("peers", "copies between two GPUs", wants=20, point=4)
def peers(bench):
    if not bench.standin and bench.gpus < 2:
        raise Skip("one GPU here")
    found = bench.child("peers", environment={"BERTH_MODE": "learn"}, devices=2)
    return decided(
        bench,
        not found["wrong"],
        f"{len(found['sizes'])} sizes, {len(found['wrong'])} of them wrong, peer access: {found['can_access']}",
        **found,
    )


@sharing.row("nccl", "one rank: set_device first, collectives, DDP, a registered pool", wants=40, point=4)
def nccl(bench):
    found = bench.child("distributed", *(["--steps", 5] if bench.small else []), environment={"BERTH_MODE": "learn"})
    return decided(
        bench,
        found["equal"],
        f"collectives {'not compared' if bench.standin else 'equal' if found['equal'] else 'DIFFER'}, registered pool: {found['registered_pool']}",
        **found,
    )
