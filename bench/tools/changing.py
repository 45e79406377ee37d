"""bench/changing: programs that change, under berth learning in place and under libtorch's own CUDA allocators, on the stand-in (no GPU).

plain is berth on plain memory (BERTH_MEMORY=plain): cudaMalloc throughout, as native has it.

Lengths and batches that differ, evaluation between training, accumulation, GANs, generation, FSDP2; and models whose steps are always the same.
Each run is a process of its own. Live is the largest sum of blocks rounded to 512 bytes over the whole process, start included: the least that any
of the allocators counted, since the native one counts rests that it does not split off. Reserved is its own count of what it held at most.
Memory calls are cudaMalloc, cudaFree and cuMem*; waits are calls that return when the device is done (cudaFree is one). Kept is what is reserved
beside what lives when the program has let go of its tensors and called empty_cache(). --limits adds runs under 1.02 times the live peak.

Some programs want torchvision: bench/changing --setup puts it into build/packages.
"""

import argparse
import datetime
import json
import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import packages  # noqa: E402
import standin_programs  # noqa: E402
import training  # noqa: E402
from training import ROOT, Failure, note  # noqa: E402

SETTINGS = {
    "berth": {"BERTH_MODE": "learn"},
    "plain": {"BERTH_MODE": "learn", "BERTH_MEMORY": "plain"},
    "native": {},
    "expandable": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
}
BERTHS = ("berth", "plain")
SMOKE = ["buckets", "train-8-evaluate-4"]
MARGIN = 1.02


def run(name, setting, arguments, limit=0, snapshot=None):
    """One program under one allocator; what it wrote. `snapshot`: where the history of its requests goes, as PyTorch's own allocator keeps it."""
    return standin_programs.run(
        arguments,
        "programs",
        name,
        SETTINGS[setting],
        "--limit-bytes",
        limit,
        *(["--pace-ms", arguments.pace_ms] if setting in BERTHS else []),
        *(["--steps", arguments.steps] if arguments.steps else []),
        *(["--snapshot", snapshot] if snapshot else []),
    )


def settled(result, seen=3):
    """The steps after each kind was seen so many times, or after as many as the program says."""
    steps = result["steps"]
    if result["settles"]:
        return steps[result["settles"] :]
    left, kinds = {step["kind"]: seen for step in steps}, len({step["kind"] for step in steps})
    for index, step in enumerate(steps):
        if left[step["kind"]]:
            left[step["kind"]] -= 1
            kinds -= left[step["kind"]] == 0
        if kinds == 0:
            return steps[index + 1 :]
    return []


def share(steps):
    """Hits of requests, exact and in buckets; None without berth or steps."""
    requests = sum(step["requests"] for step in steps)
    return sum(step["hits"] + step["hits_bucket"] for step in steps) / requests if requests else None


def digest(result, live):
    steps = result["steps"]
    quarter = steps[len(steps) * 3 // 4 :]
    total = lambda name, of: sum(step[name] for step in of)  # noqa: E731
    return {
        "reserved_peak_bytes": result["reserved_peak_bytes"],
        "allocated_peak_bytes": result["allocated_peak_bytes"],
        "device_peak_bytes": result["device_peak_bytes"],
        "ratio": result["reserved_peak_bytes"] / live,
        "kept_bytes": result["left_reserved_bytes"] - result["left_allocated_bytes"],
        "steps": len(steps),
        "hits": share(steps),
        "hits_settled": share(settled(result)),
        **{
            f"{name}{suffix}": total(name, of)
            for name in ("memory_calls", "driver_us", "waits")
            for suffix, of in (("", steps), ("_last_quarter", quarter))
        },
        "counts": {
            name: total(name, steps) for name in steps[0] if name not in ("kind", "memory_calls", "driver_us", "waits")
        }
        if steps
        else {},
        "out_of_memory": result["out_of_memory"],
        "violations": result["violations"],
    }


def measure(name, does, arguments):
    results = {setting: run(name, setting, arguments) for setting in arguments.allocator}
    live = min(result["allocated_peak_bytes"] for result in results.values())
    answer = {
        "program": name,
        "does": does,
        "live_peak_bytes": live,
        "allocators": {s: digest(result, live) for s, result in results.items()},
    }
    if arguments.limits:
        # The device's limit is a share of all its memory, in whole pages.
        limit = int(live * MARGIN)
        for setting in arguments.allocator:
            limited = run(name, setting, arguments, limit)
            answer["allocators"][setting]["under_limit"] = {
                "limit_bytes": limit,
                "steps": len(limited["steps"]),
                "out_of_memory": limited["out_of_memory"],
            }
    note(f"changing: {name}: " + ", ".join(f"{s} {one['ratio']:.3f}" for s, one in answer["allocators"].items()))
    return answer


def percent(value):
    return "" if value is None else f"{100 * value:.1f}"


def tables(answers, allocators):
    """Memory, then calls: a row a program."""
    memory, calls = [], []
    for answer in answers:
        found = [answer["allocators"][setting] for setting in allocators]
        row = [
            answer["program"],
            training.mebibytes(answer["live_peak_bytes"]),
            *(f"{one['ratio']:.3f}" for one in found),
            *(training.mebibytes(one["kept_bytes"]) for one in found),
        ]
        if "under_limit" in found[0]:
            row += [
                f"step {one['under_limit']['steps']}" if one["under_limit"]["out_of_memory"] else "fits"
                for one in found
            ]
        memory.append(row)
        berths = [answer["allocators"][setting] for setting in allocators if setting in BERTHS]
        calls.append(
            [
                answer["program"],
                *(percent(one[name]) for one in berths for name in ("hits", "hits_settled")),
                *(f"{one['memory_calls']:,} ({one['memory_calls_last_quarter']:,})" for one in found),
                *(f"{one['driver_us'] / 1000:,.1f} ({one['driver_us_last_quarter'] / 1000:,.1f})" for one in found),
                *(f"{one['waits']:,} ({one['waits_last_quarter']:,})" for one in found),
            ]
        )
    limits = (
        [f"{s}: at live + 2 %" for s in allocators] if "under_limit" in answers[0]["allocators"][allocators[0]] else []
    )
    return (
        "**Memory**: reserved / live at their peaks, what is kept after empty_cache(), and where it ran out of memory under a limit\n\n"
        + training.table(["program", "live", *allocators, *(f"{s}: kept" for s in allocators), *limits], memory)
        + "\n\n**Calls**: hits in percent, in all and after each kind of step was seen three times (of random lengths and generation: after 50 and "
        "15 steps); calls, and what they cost the host on an H100 in ms, in all (in the last quarter of the steps)\n\n"
        + training.table(
            [
                "program",
                *(f"{s}: {what}" for s in allocators if s in BERTHS for what in ("hits", "settled")),
                *(f"{s}: memory calls" for s in allocators),
                *(f"{s}: ms" for s in allocators),
                *(f"{s}: waits" for s in allocators),
            ],
            calls,
        )
    )


def summary(answers, allocators):
    ratios = {s: [answer["allocators"][s]["ratio"] for answer in answers] for s in allocators}
    mean = lambda s: sum(ratios[s]) / len(answers)  # noqa: E731
    below = lambda s, other: sum(a <= b for a, b in zip(ratios[s], ratios[other]))  # noqa: E731
    dearer = lambda s, other, what: sum(
        answer["allocators"][s][what] > answer["allocators"][other][what] for answer in answers
    )  # noqa: E731
    lines = []
    if {"berth", "expandable"} <= set(allocators):
        within = lambda most: sum(ratio <= most for ratio in ratios["berth"])  # noqa: E731
        lines.append(
            f"Of {len(answers)} programs berth is within 1.01 of live in {within(1.01)}, within 1.03 in {within(1.03)}, at or below expandable "
            f"segments in {below('berth', 'expandable')}. Mean: berth {mean('berth'):.3f}, expandable {mean('expandable'):.3f}. More memory calls "
            f"than expandable segments in {dearer('berth', 'expandable', 'memory_calls')}, more driver time in "
            f"{dearer('berth', 'expandable', 'driver_us')}."
        )
    if {"plain", "native"} <= set(allocators):
        lines.append(
            f"On plain memory berth is at or below the native allocator in {below('plain', 'native')}. Mean: plain {mean('plain'):.3f} (worst "
            f"{max(ratios['plain']):.3f}), native {mean('native'):.3f} (worst {max(ratios['native']):.3f}). More memory calls than native in "
            f"{dearer('plain', 'native', 'memory_calls')}, more driver time in {dearer('plain', 'native', 'driver_us')}."
        )
    return "\n\n".join(lines)


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="bench/changing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    standin_programs.add_options(add)
    add("--allocator", action="append", choices=list(SETTINGS), help="may be repeated (default: all)")
    add("--limits", action="store_true", help=f"run each again under {MARGIN} times its live peak")
    add("--steps", type=int, help="of each program, at most")
    add(
        "--pace-ms",
        type=float,
        default=30,
        help="how long a step under berth lasts at least: planning goes on meanwhile (default: %(default)s)",
    )
    add("--output", type=pathlib.Path, default=ROOT / "bench/results/changing", help="without suffix")
    add("--smoke", action="store_true", help="the smallest form, for tests: writes nothing but --output where given")
    arguments = parser.parse_args(argv)
    arguments.build_dir = arguments.build_dir.resolve()
    arguments.allocator = arguments.allocator or list(SETTINGS)
    if arguments.smoke:
        arguments.only, arguments.steps = arguments.only or SMOKE, arguments.steps or 24
        arguments.pace_ms = max(arguments.pace_ms, 100)  # tests run side by side
    return parser, arguments


def main(argv):
    parser, arguments = parse(argv)
    if arguments.setup:
        packages.setup(arguments.python)
        return 0
    programs = standin_programs.known(arguments, "programs")
    if arguments.list:
        print("\n".join(f"{name}: {does}" for name, (does, _) in programs.items()))
        return 0
    answers, skipped, failed = [], [], []
    host = training.machine()
    commit, date = training.commit(), datetime.date.today().isoformat()
    for name in standin_programs.chosen(parser, arguments.only, programs):
        does, lacks = programs[name]
        if lacks:
            skipped.append(name)
            continue
        try:
            answers.append(measure(name, does, arguments))
        except Failure as failure:
            failed.append(name)
            note(f"changing: {name}: {failure}")
    if not answers:
        raise Failure("none of these programs ran; those of torchvision need bench/changing --setup")
    command = shlex.join(["bench/changing", *argv])
    text = (
        "\n\n".join(
            part
            for part in (
                f"# bench/changing\n\nCommit {commit}, {date}, {host['cpu']}, {host['cores']} cores, {host['memory_bytes'] / 2**30:.0f} GiB; stand-in; `{command}`",
                summary(answers, arguments.allocator),
                tables(answers, arguments.allocator),
                "\n".join(["What they do:", "", *(f"- {answer['program']}: {answer['does']}" for answer in answers)]),
                f"Left out, for want of packages (bench/changing --setup): {', '.join(skipped)}." if skipped else "",
                f"Failed: {', '.join(failed)}." if failed else "",
            )
            if part
        )
        + "\n"
    )
    if not arguments.smoke or "--output" in argv:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        report = {
            "command": command,
            "commit": commit,
            "date": date,
            "machine": host,
            "programs": answers,
            "skipped": skipped,
            "failed": failed,
        }
        arguments.output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        arguments.output.with_suffix(".md").write_text(text)
    print(text, end="")
    return 1 if failed else 0


if __name__ == "__main__":
    training.run_main("changing", main)
