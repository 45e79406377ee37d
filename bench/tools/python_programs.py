"""bench/python: unchanged training scripts in Python on the CPU under each allocator, paired in one run; and what the package itself costs.

Every round runs each allocator once, in an order that changes from round to round; ratios are taken within a round. berth comes by
`python -m berth run`; others are preloaded. All run on the stand-in's launcher, since torch wants NVIDIA's libraries. Peak memory is that
of the whole process, interpreter and torch included. Needs a quiet machine. Writes NAME.json and NAME.md.
"""

import argparse
import datetime
import json
import pathlib
import shlex
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training  # noqa: E402
from allocators import PRELOADED, library  # noqa: E402
from training import Failure, note  # noqa: E402

HERE = pathlib.Path(__file__).parent / "python_children"
MODELS = ["resnet18", "gpt", "vit", "lstm"]


def launcher(arguments, *options):
    """The stand-in, and the Python whose torch berth was built for."""
    cache = (arguments.build_dir / "CMakeCache.txt").read_text()
    python = next((line.split("=", 1)[1] for line in cache.splitlines() if line.startswith("Python_EXECUTABLE:")), "")
    if not python:
        raise Failure(f"{arguments.build_dir} has no package for Python: cmake says why")
    return [arguments.build_dir / "standin/berth-standin", *options, "--", python], {
        "PYTHONPATH": str(arguments.build_dir / "python"),
        "OMP_NUM_THREADS": str(arguments.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def allocators(only):
    """Name -> library to preload; None for glibc, "berth" for berth."""
    found = {"glibc": None}
    for name, pattern in PRELOADED.items():
        found[name] = library(pattern)
        if found[name] is None:
            del found[name]
            note(f"python: {name} is not installed and is left out; cmake/setup installs it")
    found["berth"] = "berth"
    return {name: path for name, path in found.items() if not only or name in only or name in ("glibc", "berth")}


def run(arguments, model, preload):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.json"
        options = ["--preload", preload] if preload not in (None, "berth") else []
        command, environment = launcher(arguments, *options)
        if preload == "berth":
            command = [*command, "-m", "berth", "run", "--device", "cpu"]
            environment["WAIT_FOR_PLAN"] = "1"
        training.run([*command, HERE / "train.py", model, arguments.steps, arguments.warmup, path], environment)
        return json.loads(path.read_text())


def measure(model, arguments):
    settings = allocators(arguments.only)
    runs, names = {name: [] for name in settings}, list(settings)
    for turn in range(arguments.rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            runs[name].append(run(arguments, model, settings[name]))
            note(
                f"python: {model}: round {turn + 1}/{arguments.rounds}: {name}: "
                f"{statistics.median(step['ms'] for step in runs[name][-1]['steps']):.1f} ms"
            )
    times = {
        name: [statistics.median(step["ms"] for step in one["steps"]) for one in results]
        for name, results in runs.items()
    }
    best = min((name for name in names if name != "berth"), key=lambda name: statistics.median(times[name]))
    answer = {
        "model": model,
        "best_other": best,
        "losses_agree": training.losses_agree([one for results in runs.values() for one in results]),
        "allocators": {},
    }
    for name, results in runs.items():
        ratios = {key: [b / a for a, b in zip(times[name], times[key])] for key in ("glibc", best)}
        answer["allocators"][name] = {
            "step_ms_by_round": times[name],
            "peak_rss_bytes": statistics.median(one["peak_rss_bytes"] for one in results),
            "minor_faults_per_step": statistics.median(
                step["minor_faults"] for one in results for step in one["steps"]
            ),
            "over_glibc": ratios["glibc"],
            "over_best": ratios[best],
        }
    return answer


def costs(arguments):
    """Medians over as many processes as there are rounds."""
    command, environment = launcher(arguments)
    runs = {
        kind: [
            json.loads(training.run([*command, HERE / "costs.py", kind], environment)) for _ in range(arguments.rounds)
        ]
        for kind in ("glibc", "berth")
    }
    return {kind: {name: [one[name] for one in results] for name in results[0]} for kind, results in runs.items()}


def spread(values, digits=3):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def section(answer):
    rows = [
        [
            name,
            spread(one["step_ms_by_round"], 1),
            spread(one["over_glibc"]),
            spread(one["over_best"]),
            f"{one['minor_faults_per_step']:,.0f}",
            training.mebibytes(one["peak_rss_bytes"]),
        ]
        for name, one in answer["allocators"].items()
    ]
    losses = "losses of all runs equal to the last bit" if answer["losses_agree"] else "LOSSES DIFFER"
    return f"**{answer['model']}**: best other: {answer['best_other']}; {losses}\n\n" + training.table(
        ["allocator", "step, ms", "speed over glibc", "speed over best other", "faults a step", "peak memory"], rows
    )


def costs_section(answer):
    one = answer["berth"]
    ratio = [b / a for a, b in zip(answer["glibc"]["request_ns"], one["request_ns"])]
    return "**The package itself**: " + "; ".join(
        [
            f"`import berth` after torch {spread(one['import_ms'], 1)} ms",
            f"`install()` {spread(one['install_ms'], 1)} ms",
            f"`stats()` {spread(one['stats_us'], 1)} us",
            f"`torch.empty()` and its end: {spread(one['request_ns'], 0)} ns when planned, {spread(answer['glibc']['request_ns'], 0)} ns under glibc, "
            f"ratio {spread(ratio)}",
        ]
    )


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/python", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", action="append", choices=MODELS, help=f"may be repeated (default: {', '.join(MODELS)})")
    add("--only", action="append", choices=list(PRELOADED), help="of the others; may be repeated; glibc always runs")
    add("--steps", type=int, default=20, help="measured steps a run (default: %(default)s)")
    add("--warmup", type=int, default=6, help="steps before them (default: %(default)s)")
    add("--rounds", type=int, default=5, help="default: %(default)s")
    add("--threads", type=int, default=2, help="of torch (default: %(default)s)")
    add("--build-dir", type=pathlib.Path, default=training.ROOT / "build/release")
    add("--output", type=pathlib.Path, default=training.ROOT / "bench/results/python", help="without suffix")
    add("--smoke", action="store_true", help="the smallest form, for tests: prints, and writes nothing")
    arguments = parser.parse_args(argv)
    if arguments.smoke:
        arguments.model, arguments.only, arguments.steps, arguments.warmup, arguments.rounds, arguments.threads = (
            ["lstm"],
            ["jemalloc"],
            2,
            4,
            1,
            1,
        )
    arguments.build_dir = arguments.build_dir.resolve()
    answers = [measure(model, arguments) for model in arguments.model or MODELS]
    package = costs(arguments)
    report = {
        "command": shlex.join(["bench/python", *argv]),
        "commit": training.commit(),
        "date": datetime.date.today().isoformat(),
        "machine": training.machine(),
        "models": answers,
        "package": package,
    }
    machine = report["machine"]
    text = (
        "\n\n".join(
            [
                f"`{report['command']}`, commit {report['commit']}, {report['date']}, {machine['cpu']}, {machine['cores']} cores, {machine['libc']}. "
                "Medians over rounds, with the least and the most.",
                *map(section, answers),
                costs_section(package),
            ]
        )
        + "\n"
    )
    print(text)
    if not arguments.smoke:
        arguments.output.with_suffix(".md").write_text("# Python on the CPU\n\n" + text)
        arguments.output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    if not all(answer["losses_agree"] for answer in answers):
        raise Failure("losses differ between allocators")
    return 0


if __name__ == "__main__":
    training.run_main("python", main)
