"""bench/dry_run: how long `berth dry-run` takes and what it costs the host, on a Llama of 1.1B shape (batch 2 x 2048 tokens, AdamW).

The weights are made on the device, or on the host first. Memory is the most that the program held on the host; "above" is what is beyond that of the
same script which only builds its model (on no device, or on the host). A step is the difference of two runs with more and fewer steps.
"""

import argparse
import datetime
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training  # noqa: E402
from training import ROOT, Failure, note  # noqa: E402

SCRIPT = pathlib.Path(__file__).resolve().parent / "dry_run_children" / "llama.py"
GIB = 1 << 30


def size_arguments(arguments):
    return ["--size", "small", "--length", 64] if arguments.smoke else []


def dry_run(arguments, init, steps):
    """One dry run: its report."""
    with tempfile.TemporaryDirectory() as folder:
        text = training.run(
            [
                arguments.build_dir / "berth",
                "dry-run",
                "--json",
                "--gpu",
                "H100-80",
                "-o",
                pathlib.Path(folder) / "x.trace",
                "--",
                arguments.python,
                "-B",
                SCRIPT,
                "--init",
                init,
                "--steps",
                steps,
                *size_arguments(arguments),
            ],
            {"HF_HUB_OFFLINE": "1"},
        )
    return json.loads(text)


def held_by_script(arguments, init):
    return int(
        training.run(
            [
                arguments.build_dir / "standin/berth-standin",
                "--",
                arguments.python,
                "-B",
                SCRIPT,
                "--init",
                init,
                "--only-build",
                *size_arguments(arguments),
            ],
            {"HF_HUB_OFFLINE": "1"},
        )
    )


def measure(arguments, init):
    own = held_by_script(arguments, init)
    runs = {steps: dry_run(arguments, init, steps) for steps in (3, 3 + arguments.more_steps)}
    report = runs[3]
    rank = report["ranks"][0]
    answer = {
        "init": init,
        "seconds": report["seconds"],
        "step_seconds": (runs[3 + arguments.more_steps]["seconds"] - report["seconds"]) / arguments.more_steps,
        "host_peak_bytes": report["host_peak_bytes"],
        "script_bytes": own,
        "above_bytes": report["host_peak_bytes"] - own,
        "live_peak_bytes": rank["live_peak_bytes"],
        "fits": report["fits"],
        "reserved_bytes": {name: one["reserved_peak_bytes"] for name, one in rank["allocators"].items()},
    }
    note(f"dry_run: {init}: {answer['seconds']:.1f} s, {answer['above_bytes'] / GIB:.2f} GiB above the script's own")
    return answer


def markdown(answers):
    lines = [
        "| weights made on | run of 3 steps, s | a step, s | host memory, GiB | of it the script's own | above it | live peak, GiB | caching | expandable | planned |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    gib = lambda value: "-" if value is None else f"{value / GIB:.2f}"  # noqa: E731
    for one in answers:
        reserved = [gib(one["reserved_bytes"].get(name)) for name in ("caching", "expandable", "planned")]
        lines.append(
            f"| {'the device' if one['init'] == 'device' else 'the host'} | {one['seconds']:.1f} | {one['step_seconds']:.2f} | "
            f"{gib(one['host_peak_bytes'])} | {gib(one['script_bytes'])} | {gib(one['above_bytes'])} | {gib(one['live_peak_bytes'])} | "
            + " | ".join(reserved)
            + " |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        prog="bench/dry_run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build/release", help="of berth")
    parser.add_argument(
        "--python",
        type=pathlib.Path,
        default=ROOT / ".venv/bin/python",
        help="with torch and transformers (cmake/setup)",
    )
    parser.add_argument("--more-steps", type=int, default=60, help="of the second run")
    parser.add_argument("--smoke", action="store_true", help="a small one, to see that it works")
    parser.add_argument("--output", type=pathlib.Path, help="a .md that is written; a .json goes beside it")
    arguments = parser.parse_args()
    try:
        answers = [measure(arguments, init) for init in ("device", "cpu")]
    except Failure as failure:
        print(f"dry_run: {failure}", file=sys.stderr)
        return 1
    text = markdown(answers)
    print(text, end="")
    if arguments.output:
        host = training.machine()
        head = (
            f"# Dry run of a Llama of 1.1B shape\n\nCommit {training.commit()}, {datetime.date.today()}, {host['cpu']}, {host['cores']} cores, "
            f"{host['memory_bytes'] / GIB:.0f} GiB, no GPU; `bench/dry_run`.\n"
            "transformers with random weights, batch 2 x 2048 tokens, AdamW, `--gpu H100-80`.\n\n"
        )
        arguments.output.write_text(head + text)
        arguments.output.with_suffix(".json").write_text(json.dumps(answers, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
