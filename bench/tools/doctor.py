"""bench/doctor: what berth doctor forecasts beside what is measured afterwards, and what a large snapshot takes to import.

forecast  Programs of bench/changing on the stand-in (no GPU), one process each: under PyTorch's own allocator with its history on, whose snapshot
          berth doctor reads; then under berth, learning in place. Measured is what each allocator counts itself, at most over the whole run.
import    A snapshot of 1,000,000 entries, each with a stack of 40 frames, as Python's pickle writes it: seconds and peak memory of `berth import`.
"""

import argparse
import datetime
import json
import os
import pathlib
import pickle
import random
import shlex
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import changing  # noqa: E402
import standin_programs  # noqa: E402
import training  # noqa: E402
from training import ROOT, Failure, note  # noqa: E402

PROGRAMS = [
    "buckets",
    "train-8-evaluate-4",
    "short-last-batch",
    "growing-batch",
    "accumulation-of-4",
    "fsdp2",
    "gan",
    "turns-of-3",
    "lengths-20",
    "lengths-1024",
    "generation",
    "static-*",
]
SMOKE = ["buckets"]
PARTS = ["forecast", "import"]
STEPS = 800  # requests of a step of the large snapshot


def forecast(name, does, arguments):
    """One program: the doctor's words for its snapshot, and what berth then holds."""
    with tempfile.TemporaryDirectory() as folder:
        snapshot = pathlib.Path(folder) / "snapshot.pickle"
        native = changing.run(name, "native", arguments, snapshot=snapshot)
        said = json.loads(training.run([training.program(arguments.build_dir, "berth"), "doctor", snapshot, "--json"]))
    berth = changing.run(name, "berth", arguments)
    measured = {"native": native["reserved_peak_bytes"], "berth": berth["reserved_peak_bytes"]}
    answer = {
        "program": name,
        "does": does,
        "steps": len(native["steps"]),
        "live_peak_bytes": said["live_peak_bytes"],
        "native_measured_bytes": measured["native"],
        "native_by_snapshot_bytes": said["native_reserved_bytes"],
        "native_by_model_bytes": said["caching_model_bytes"],
        "berth_forecast_bytes": said["planned_reserved_bytes"],
        "berth_measured_bytes": measured["berth"],
        "error": said["planned_reserved_bytes"] / measured["berth"] - 1,
        "saving_forecast_bytes": said["saving_bytes"],
        "saving_measured_bytes": measured["native"] - measured["berth"],
        "batch_factor": said["batch_factor"],
        "findings": [finding["name"] for finding in said["findings"]],
    }
    note(
        f"doctor: {name}: forecast {answer['berth_forecast_bytes']:,}, measured {measured['berth']:,} bytes ({100 * answer['error']:+.2f} %)"
    )
    return answer


def write_large_snapshot(path, entries, depth):
    """A history of equal steps of about 800 requests; stacks as PyTorch shares them: one list an entry, of frames that many hold."""
    draw, frames = random.Random(1), []
    for index in range(1500):
        folder = "model" if index % 3 == 0 else "site-packages/torch/nn"
        frames.append(
            {"name": f"function_{index}", "filename": f"/venv/lib/python3/{folder}/file_{index % 97}.py", "line": index}
        )
    sizes = [draw.choice([512 * draw.randint(1, 2000), draw.randint(1, 40) << 20]) for _ in range(STEPS)]
    trace, base = [], 1 << 40

    def add(action, address, size):
        first = draw.randrange(len(frames) - depth)
        trace.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": 0,
                "time_us": 10**15 + len(trace),
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": frames[first : first + depth],
            }
        )

    def free(block):
        add("free_requested", *block)
        add("free_completed", *block)

    while len(trace) < entries:
        live, address = [], base
        for index, size in enumerate(sizes):
            add("alloc", address, size)
            live.append((address, size))
            address += size + 512
            if index % 3 == 2:
                free(live.pop())
        while live:
            free(live.pop())
    segment = {
        "device": 0,
        "address": base,
        "total_size": 1 << 34,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [],
    }
    with open(path, "wb") as file:
        pickle.dump(
            {"segments": [segment], "device_traces": [trace], "allocator_settings": {}, "external_annotations": []},
            file,
        )
    return len(trace)


def import_large(arguments):
    with tempfile.TemporaryDirectory() as folder:
        snapshot, trace = pathlib.Path(folder) / "snapshot.pickle", pathlib.Path(folder) / "run.trace"
        entries = write_large_snapshot(snapshot, 20_000 if arguments.smoke else 1_000_000, 40)
        command = [
            str(training.program(arguments.build_dir, "berth")),
            "import",
            str(snapshot),
            "-o",
            str(trace),
            "--json",
        ]
        runs = []
        for _ in range(arguments.rounds):
            begun = time.monotonic()
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            said = json.loads(process.stdout.read())
            _, status, usage = os.wait4(process.pid, 0)
            if status != 0 or said["entries"] != entries:
                raise Failure(f"berth import ended with {status}: {said}")
            runs.append(
                {
                    "seconds": time.monotonic() - begun,
                    "cpu_seconds": usage.ru_utime + usage.ru_stime,
                    "peak_bytes": usage.ru_maxrss * 1024,
                }
            )
        answer = {
            "entries": entries,
            "snapshot_bytes": snapshot.stat().st_size,
            "trace_bytes": trace.stat().st_size,
            "runs": runs,
        }
    note(f"doctor: {entries:,} entries imported in {min(run['seconds'] for run in runs):.2f} s at least")
    return answer


def report(answers, large):
    text = []
    if answers:
        rows = [
            [
                answer["program"],
                f"{answer['steps']}",
                training.mebibytes(answer["live_peak_bytes"]),
                training.mebibytes(answer["native_measured_bytes"]),
                training.mebibytes(answer["native_by_model_bytes"]),
                training.mebibytes(answer["berth_forecast_bytes"]),
                training.mebibytes(answer["berth_measured_bytes"]),
                f"{100 * answer['error']:+.2f} %",
                f"{answer['batch_factor']:.2f}",
                ", ".join(answer["findings"]),
            ]
            for answer in answers
        ]
        worst = max(answers, key=lambda answer: abs(answer["error"]))
        within = sum(abs(answer["error"]) <= 0.01 for answer in answers)
        text.append(
            "**Forecast**: reserved bytes, at most over the run; batch is how much larger it can be in what PyTorch's allocator held\n\n"
            + training.table(
                [
                    "program",
                    "steps",
                    "live",
                    "native, measured",
                    "by model",
                    "berth, forecast",
                    "measured",
                    "error",
                    "batch",
                    "findings",
                ],
                rows,
            )
            + f"\n\nOf {len(answers)} forecasts {within} are within 1 % of what was measured; the worst is {worst['program']}, "
            f"{100 * worst['error']:+.2f} %."
        )
    if large:
        runs = large["runs"]
        text.append(
            f"**Import**: {large['entries']:,} entries, {training.mebibytes(large['snapshot_bytes'])} of pickle: "
            + ", ".join(f"{run['seconds']:.2f} s ({run['cpu_seconds']:.2f} s of the processor)" for run in runs)
            + f"; peak memory {training.mebibytes(max(run['peak_bytes'] for run in runs))}; the trace has "
            f"{training.mebibytes(large['trace_bytes'])}."
        )
    return text


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="bench/doctor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("part", nargs="*", help=f"of {' and '.join(PARTS)} (default: both)")
    add(
        "--only",
        action="append",
        metavar="NAME",
        help=f"this program of bench/changing, or, with '*' behind, those that begin so (default: {', '.join(PROGRAMS)})",
    )
    add("--steps", type=int, default=40, help="of each program, at most (default: %(default)s)")
    add("--pace-ms", type=float, default=30, help="how long a step under berth lasts at least (default: %(default)s)")
    add("--rounds", type=int, default=3, help="of the import (default: %(default)s)")
    add("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python3", help="one that has torch for CUDA")
    add("--build-dir", type=pathlib.Path, default=ROOT / "build/release")
    add("--output", type=pathlib.Path, default=ROOT / "bench/results/doctor", help="without suffix")
    add("--smoke", action="store_true", help="the smallest form, for tests: writes nothing but --output where given")
    arguments = parser.parse_args(argv)
    for part in arguments.part:
        if part not in PARTS:
            parser.error(f"there is no part '{part}' (there is {', '.join(PARTS)})")
    arguments.build_dir, arguments.part = arguments.build_dir.resolve(), arguments.part or PARTS
    if arguments.smoke:
        arguments.only, arguments.steps, arguments.rounds = arguments.only or SMOKE, 16, 1
        arguments.pace_ms = max(arguments.pace_ms, 100)
    arguments.only = arguments.only or PROGRAMS
    return parser, arguments


def main(argv):
    parser, arguments = parse(argv)
    host, commit, date = training.machine(), training.commit(), datetime.date.today().isoformat()
    large = import_large(arguments) if "import" in arguments.part else None
    answers, failed, skipped = [], [], []
    if "forecast" in arguments.part:
        programs = standin_programs.known(arguments, "programs")
        for name in standin_programs.chosen(parser, arguments.only, programs):
            does, lacks = programs[name]
            if lacks:
                skipped.append(name)
                continue
            try:
                answers.append(forecast(name, does, arguments))
            except Failure as failure:
                failed.append(name)
                note(f"doctor: {name}: {failure}")
    command = shlex.join(["bench/doctor", *argv])
    text = (
        "\n\n".join(
            [
                f"# bench/doctor\n\nCommit {commit}, {date}, {host['cpu']}, {host['cores']} cores, {host['memory_bytes'] / 2**30:.0f} GiB; stand-in; `{command}`",
                *report(answers, large),
                *([f"Left out, for want of bench/changing --setup: {', '.join(skipped)}."] if skipped else []),
                *([f"Failed: {', '.join(failed)}."] if failed else []),
            ]
        )
        + "\n"
    )
    if not arguments.smoke or "--output" in argv:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        everything = {
            "command": command,
            "commit": commit,
            "date": date,
            "machine": host,
            "programs": answers,
            "import": large,
            "skipped": skipped,
            "failed": failed,
        }
        arguments.output.with_suffix(".json").write_text(json.dumps(everything, indent=1) + "\n")
        arguments.output.with_suffix(".md").write_text(text)
    print(text, end="")
    return 1 if failed else 0


if __name__ == "__main__":
    training.run_main("doctor", main)
