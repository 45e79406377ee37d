"""Runs bench/train under one allocator after another and reads what it says. Used by bench/demo and bench/allocators."""

import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Failure(Exception):
    """A message for the person who ran the script."""


def program(build, name):
    path = build / {"train": "bench/train/train", "berth": "berth"}[name]
    if not path.is_file():
        raise Failure(f"{path} is missing: bench/demo builds it into build/release")
    return path


def clean_environment(extra):
    """The environment without what steers allocators, and `extra`."""
    steers = re.compile(r"^(BERTH_|MALLOC_|LD_PRELOAD$|GLIBC_TUNABLES$|MIMALLOC_|TCMALLOC_|JE_MALLOC|MALLOC$)")
    return {**{name: value for name, value in os.environ.items() if not steers.match(name)}, **extra}


def run(command, environment=None, show=False):
    """Runs a command to its end and returns its standard output; raises Failure with its last words."""
    result = subprocess.run([str(part) for part in command], env=clean_environment(environment or {}),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=None if show else subprocess.PIPE, text=True, errors="replace", cwd=ROOT)
    words = (result.stderr or "").strip()
    if "cannot be preloaded" in words:
        raise Failure(words.splitlines()[0])
    if result.returncode != 0:
        how = f"was ended by signal {-result.returncode}" if result.returncode < 0 else f"ended with {result.returncode}"
        raise Failure(f"{pathlib.Path(command[0]).name} {how}: {' '.join(map(str, command))}\n{words[-2000:]}")
    return result.stdout


class Training:
    """One training problem: the same steps on the same data, whatever the allocator."""

    def __init__(self, build, model, steps, warmup, data, threads=None, batch=None, seed=1):
        self.build, self.model, self.steps, self.warmup = build, model, steps, warmup
        self.arguments = ["--model", model, "--data", str(data), "--seed", str(seed)]
        if threads:
            self.arguments += ["--threads", str(threads)]
        if batch:
            self.arguments += ["--batch", str(batch)]

    def command(self, json_path, steps=None, warmup=None):
        return [program(self.build, "train"), *self.arguments, "--steps", steps or self.steps,
                "--warmup", self.warmup if warmup is None else warmup, "--quiet", "--json", json_path]

    def run(self, environment):
        """One run; what bench/train wrote, with the hits and misses of a measured step."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "run.json"
            run(self.command(path), environment)
            result = json.loads(path.read_text())
        result["counts"] = self.counts(result)
        return result

    def counts(self, result):
        """Per measured step: hits, misses (requests that did not get the bytes that an active plan has for them), all requests."""
        after, before = result.get("stats"), result.get("stats_after_warmup")
        if not after or not before:
            return None
        per_step = lambda *names: sum(after[name] - before[name] for name in names) / len(result["steps"])  # noqa: E731
        return {"hits": per_step("hits"), "misses": per_step("lent", "misses_size", "misses_busy", "misses_lane"),
                "unplanned": per_step("unplanned"), "requests": per_step("requests")}

    def record_and_plan(self, folder, time_limit, steps=6):
        """`berth record`, `berth plan`, `berth verify`: the plan's path, what `plan` said, and the recorded run's result."""
        berth, trace, plan = program(self.build, "berth"), folder / f"{self.model}.trace", folder / f"{self.model}.plan"
        path = folder / "record.json"
        run([berth, "record", "-o", trace, "--", *self.command(path, steps=steps, warmup=0)])
        said = json.loads(run([berth, "plan", trace, "-o", plan, "--time-limit", time_limit, "--json"]))
        run([berth, "verify", plan, trace])
        return plan, said, json.loads(path.read_text())


def losses_agree(results):
    """Whether all runs had the same losses to the last bit, for as many steps as each made."""
    losses = [result["losses_hex"] for result in results]
    longest = max(losses, key=len)
    return all(one and one == longest[:len(one)] for one in losses)


def step_times(results):
    return [step["ms"] for result in results for step in result["steps"]]


def summary(results):
    """Median and quartiles of the step time, and the medians of faults and peak memory, over all runs given."""
    times = step_times(results)
    low, middle, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return {
        "step_ms": {"median": statistics.median(times), "p25": low, "p75": high, "min": min(times), "max": max(times)},
        "minor_faults_per_step": statistics.median(step["minor_faults"] for r in results for step in r["steps"]),
        "peak_rss_bytes": statistics.median(r["peak_rss_bytes"] for r in results),
    }


def paired_ratios(results, baseline):
    """baseline / results, one ratio of median step times a round: over 1 is faster than the baseline."""
    return [statistics.median(step_times([b])) / statistics.median(step_times([a])) for a, b in zip(results, baseline)]


def machine():
    """The class of machine, without its name."""
    cpu, memory = platform.machine(), 0
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            memory = int(line.split()[1]) * 1024
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "memory_bytes": memory, "kernel": platform.release(),
            "libc": " ".join(platform.libc_ver())}


def commit():
    """The commit that is measured; '+' where the tree has changes."""
    git = lambda *a: subprocess.run(["git", *a], cwd=ROOT, capture_output=True, text=True)  # noqa: E731
    revision = git("rev-parse", "--short=12", "HEAD")
    if revision.returncode != 0:
        return "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no").stdout.strip()
    return revision.stdout.strip() + ("+" if changed else "")


def mebibytes(count):
    return f"{count / 2**20:,.0f} MiB"


def table(header, rows):
    """A markdown table, its columns aligned: the first to the left, the others to the right."""
    cells = [header, *rows]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(header))]
    line = lambda row: "| " + " | ".join(  # noqa: E731
        (cell.ljust if i == 0 else cell.rjust)(widths[i]) for i, cell in enumerate(row)) + " |"
    ruler = "| " + " | ".join("-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)) + " |"
    return "\n".join([line(header), ruler, *map(line, rows)])


def note(text):
    print(text, file=sys.stderr, flush=True)
