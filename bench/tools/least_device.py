"""bench/least_device: the least memory in which a program finishes under PyTorch's allocators, by one `berth dry-run` and by running it at limits.

Each program runs dry once. Then it runs on the stand-in (no GPU) under libtorch's own allocator, with expandable segments and without, on devices of
other sizes: a bisection between what lives and what it reserves without a limit finds the smallest on which it ends well, within --precision.
"forecast" is the dry run's figure (least_bytes), "found" that of the runs. The context is in neither.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training  # noqa: E402
from training import ROOT, Failure, note  # noqa: E402

CHILD = pathlib.Path(__file__).resolve().parent / "least_children" / "programs.py"
PAGE, MIB = 2 << 20, 1 << 20
ALLOCATORS = {"caching": "", "expandable": "expandable_segments:True"}
OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory|CUBLAS_STATUS_ALLOC_FAILED|out of memory")


def names():
    return re.findall(r"^@program\ndef (\w+)\(", CHILD.read_text(), re.MULTILINE)


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.berth = training.program(arguments.build_dir, "berth")
        self.launcher = arguments.build_dir / "standin/berth-standin"

    def command(self, name):
        return [
            str(part)
            for part in [self.arguments.python, "-B", CHILD, name, *(["small"] if self.arguments.smoke else [])]
        ]

    def forecast(self, name):
        with tempfile.TemporaryDirectory() as folder:
            text = training.run(
                [self.berth, "dry-run", "--json", "-o", pathlib.Path(folder) / "x.trace", "--", *self.command(name)]
            )
        return json.loads(text)["ranks"][0]

    def finishes(self, name, setting, limit):
        """Whether the program ends well on a device of so many bytes."""
        done = subprocess.run(
            [
                self.launcher,
                "--memory",
                str(limit),
                "--pace",
                "eager",
                "--check",
                "off",
                "--copy-limit",
                str(MIB),
                "--values",
                "zeros",
                "--",
                *self.command(name),
            ],
            env=training.clean_environment({"PYTORCH_ALLOC_CONF": setting}),
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            return True
        if not OUT_OF_MEMORY.search(done.stderr):
            raise Failure(f"{name} in {limit} bytes: {done.stderr.strip()[-1000:]}")
        return False

    def find(self, name, setting, low, high):
        """The smallest device between one that is too small and one that may do, and how many runs that took."""
        runs = 1
        while not self.finishes(name, setting, high):  # what libraries take beside the allocator
            low, high, runs = high, high + max(PAGE, high // 50), runs + 1
        while high - low > max(PAGE, self.arguments.precision * high):
            middle = (low + high) // 2 // PAGE * PAGE
            if middle <= low:
                break
            runs += 1
            if self.finishes(name, setting, middle):
                high = middle
            else:
                low = middle
        return high, runs

    def measure(self, name):
        rank = self.forecast(name)
        live = rank["live_peak_bytes"]
        answers = []
        for allocator, setting in ALLOCATORS.items():
            said = rank["allocators"][allocator]
            found, runs = self.find(
                name, setting, (live - 1) // PAGE * PAGE, -(-said["reserved_peak_bytes"] // PAGE) * PAGE
            )
            answers.append(
                {
                    "program": name,
                    "allocator": allocator,
                    "live_bytes": live,
                    "reserved_bytes": said["reserved_peak_bytes"],
                    "forecast_bytes": said["least_bytes"],
                    "found_bytes": found,
                    "difference": said["least_bytes"] / found - 1,
                    "runs": runs,
                }
            )
            note(
                f"least_device: {name}, {allocator}: {said['least_bytes'] / MIB:,.0f} MiB forecast, {found / MIB:,.0f} found, "
                f"{answers[-1]['difference']:+.2%}, {runs} runs"
            )
        return answers


def markdown(answers):
    lines = [
        "| program | allocator | live, MiB | reserved without a limit | forecast | found | difference |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in answers:
        figures = " | ".join(f"{one[name + '_bytes'] / MIB:,.0f}" for name in ("live", "reserved", "forecast", "found"))
        lines.append(
            f"| {one['program']} | {one['allocator']} | {figures} | {one['difference']:+.2%} |".replace("%", " %")
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        prog="bench/least_device", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    programs = [name.replace("_", "-") for name in names()]
    add("--only", action="append", choices=programs, metavar="NAME", help=f"may be repeated: {', '.join(programs)}")
    add("--precision", type=float, default=0.003, help="of the bisection (default: %(default)s)")
    add("--build-dir", type=pathlib.Path, default=ROOT / "build/release", help="of berth")
    add("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python3", help="with torch for CUDA (cmake/setup)")
    add("--smoke", action="store_true", help="one small program, to see that it works")
    add("--output", type=pathlib.Path, help="a .md that is written; a .json goes beside it")
    arguments = parser.parse_args()
    os.environ.pop("PYTORCH_ALLOC_CONF", None)
    os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if arguments.smoke:
        arguments.precision = 0.05
    try:
        bench = Bench(arguments)
        answers = [
            one
            for name in arguments.only or (["growing-batches"] if arguments.smoke else programs)
            for one in bench.measure(name)
        ]
    except Failure as failure:
        print(f"least_device: {failure}", file=sys.stderr)
        return 1
    text = markdown(answers)
    print(text, end="")
    if arguments.output:
        host = training.machine()
        head = (
            f"# The smallest GPU by dry runs, beside runs at limits\n\nCommit {training.commit()}, {datetime.date.today()}, {host['cpu']}, "
            f"{host['cores']} cores, no GPU; `bench/least_device --precision {arguments.precision}`.\n\n"
        )
        arguments.output.write_text(head + text)
        arguments.output.with_suffix(".json").write_text(json.dumps(answers, indent=1) + "\n")
    return 0 if all(abs(one["difference"]) <= (0.1 if arguments.smoke else 0.02) for one in answers) else 1


if __name__ == "__main__":
    sys.exit(main())
