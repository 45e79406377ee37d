"""Placements by berth and by other planners, each a process of its own. Used by the scripts beside it."""

import argparse
import bisect
import csv
import datetime
import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import tempfile
import time

import training
from training import ROOT, Failure


class Run:
    """A process run to its end: its text, seconds and memory. `timed_out` where the limit ended it."""

    under = []  # a command that all are run by

    def __init__(self, command, limit):
        def unlimited_stack():  # MiniMalloc recurses once a buffer
            hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
            resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))

        start = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                [str(part) for part in [*self.under, *command]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=unlimited_stack,
            )
            self.timed_out = False
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - start > limit:
                    self.timed_out = True
                    process.kill()
                    pid, status, usage = os.wait4(process.pid, 0)
                    break
                time.sleep(0.002)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            self.text = output.read()
        self.code = process.returncode
        self.seconds = time.monotonic() - start
        self.memory_bytes = usage.ru_maxrss * 1024


class Report:
    """What the comparisons have in common: options, and a table that is printed and kept."""

    def __init__(self, name, doc, limit="--time-limit", seconds=60):
        self.name = name
        self.parser = argparse.ArgumentParser(
            prog=f"bench/{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        add = self.parser.add_argument
        if limit:
            add(
                limit,
                type=float,
                default=seconds,
                metavar="SECONDS",
                help="seconds a file and planner (default: %(default)s)",
            )
        add("--build-dir", type=pathlib.Path, default=ROOT / "build/release")
        add("--output", type=pathlib.Path, default=ROOT / "bench/results" / name, help="without suffix")
        add(
            "--smoke",
            action="store_true",
            help="an instance of its own, for tests: writes nothing but --output where given",
        )

    def keep(self, argv, arguments, remarks, header, rows):
        self.keep_text(argv, arguments, f"{remarks}\n\n{training.table(header, rows)}")

    def keep_text(self, argv, arguments, body):
        host = training.machine()
        # Files and folders by their names only.
        words = [
            f"bench/{self.name}",
            *(pathlib.Path(word).name if os.sep in word else word for word in map(str, argv)),
        ]
        text = (
            f"# bench/{self.name}\n\nCommit {training.commit()}, {datetime.date.today().isoformat()}, {host['cpu']}, {host['cores']} "
            f"cores, {host['libc']}; `{shlex.join(words)}`.\n{body}\n"
        )
        if not arguments.smoke or "--output" in argv:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.with_suffix(".md").write_text(text)
        print(text, end="")


def read_lifetimes(path):
    """Rows (lower, upper, size) of a CSV id,lower,upper,size; None for another form."""
    with open(path, newline="") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if header[:4] != ["id", "lower", "upper", "size"]:
            return None
        return [tuple(map(int, row[1:4])) for row in rows if row]


def write_lifetimes(path, rows, ticks=1):
    """The same with ids 0, 1, ..., its ticks multiplied."""
    lines = (f"{i},{lower * ticks},{upper * ticks},{size}\n" for i, (lower, upper, size) in enumerate(rows))
    pathlib.Path(path).write_text("id,lower,upper,size\n" + "".join(lines))


def max_load(rows):
    load = most = 0
    for _, change in sorted([(lower, size) for lower, _, size in rows] + [(upper, -size) for _, upper, size in rows]):
        load += change
        most = max(most, load)
    return most


def peak_of(rows, offsets):
    """The peak of a placement; Failure where two buffers alive together share a byte."""
    events = sorted(
        [(lower, 1, i) for i, (lower, _, _) in enumerate(rows)]
        + [(upper, 0, i) for i, (_, upper, _) in enumerate(rows)]
    )
    live = []  # (offset, end), ascending
    for _, birth, i in events:
        block = (offsets[i], offsets[i] + rows[i][2])
        at = bisect.bisect_left(live, block)
        if not birth:
            del live[at]
            continue
        if (at < len(live) and live[at][0] < block[1]) or (at > 0 and live[at - 1][1] > block[0]):
            raise Failure(f"not a placement: buffer {i} shares bytes with another")
        live.insert(at, block)
    return max((offset + row[2] for offset, row in zip(offsets, rows)), default=0)


def read_offsets(path, count):
    with open(path, newline="") as file:
        rows = {int(row["id"]): int(row["offset"]) for row in csv.DictReader(file)}
    return [rows[i] for i in range(count)]


def answer(run, seconds=None, peak=None, proven=False, by=""):
    return {
        "seconds": run.seconds if seconds is None else seconds,
        "peak": peak,
        "proven": proven,
        "by": by,
        "memory_bytes": run.memory_bytes,
    }


def run_berth(program, path, rows, limit, *options):
    """`berth plan`: its own seconds, as the others count theirs, without reading and writing."""
    with tempfile.TemporaryDirectory() as folder:
        placed = pathlib.Path(folder) / "placed.csv"
        run = Run([program, "plan", path, "-o", placed, "--json", "--time-limit", limit, *options], 2 * limit + 60)
        if run.timed_out:
            return answer(run)
        if run.code != 0:
            return {
                **answer(run),
                "error": run.text.strip().splitlines()[-1] if run.text.strip() else f"ended with {run.code}",
            }
        said = json.loads(run.text)
        peak = peak_of(rows, read_offsets(placed, len(rows)))
        if peak != said["arena_bytes"]:
            raise Failure(f"berth says {said['arena_bytes']} bytes and needs {peak}")
        return {
            **answer(run, said["seconds"], peak, said["proven_optimal"], said["engine"]),
            "bound": said["lower_bound_bytes"],
        }


def run_minimalloc(program, path, rows, limit, capacity):
    """MiniMalloc asks for a capacity and says whether it found a placement within."""
    with tempfile.TemporaryDirectory() as folder:
        placed = pathlib.Path(folder) / "placed.csv"
        run = Run(
            [program, f"--capacity={capacity}", f"--input={path}", f"--output={placed}", f"--timeout={limit}s"],
            limit + 60,
        )
        seconds = re.search(r"Elapsed time ([\d.]+)s", run.text)
        peak = peak_of(rows, read_offsets(placed, len(rows))) if run.code == 0 and placed.is_file() else None
        return answer(run, float(seconds.group(1)) if seconds else None, peak)


def run_idealloc(program, path, rows, limit, tries):
    """idealloc's lifetimes lack both ends and must hold an integer: `path` has doubled ticks. It keeps its placement to itself."""
    run = Run([program, "--input", path, "ex-csv", "--max-lives", tries], limit)
    peak = re.search(r"Makespan:\s+(\d+) bytes", run.text)
    seconds = re.search(r"Total allocation time: (\d+) μs", run.text)
    return answer(run, int(seconds.group(1)) / 1e6 if seconds else None, int(peak.group(1)) if peak else None)
