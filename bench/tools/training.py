"""Runs bench/train under one allocator after another and reads what it says. Used by the scripts beside it."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shlex
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
    result = subprocess.run(
        [str(part) for part in command],
        env=clean_environment(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=ROOT,
    )
    words = (result.stderr or "").strip()
    if "cannot be preloaded" in words:
        raise Failure(words.splitlines()[0])
    if result.returncode != 0:
        how = (
            f"was ended by signal {-result.returncode}" if result.returncode < 0 else f"ended with {result.returncode}"
        )
        raise Failure(f"{pathlib.Path(command[0]).name} {how}: {' '.join(map(str, command))}\n{words[-2000:]}")
    return result.stdout


def settling(environment):
    """Arguments of bench/train: who learns in place warms up until the plan serves, however busy the machine is."""
    return ["--settle", 1000] if environment.get("BERTH_MODE") == "learn" else []


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
        return [
            program(self.build, "train"),
            *self.arguments,
            "--steps",
            steps or self.steps,
            "--warmup",
            self.warmup if warmup is None else warmup,
            "--quiet",
            "--json",
            json_path,
        ]

    def run(self, environment):
        """One run; what bench/train wrote, with the hits and misses of a measured step."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "run.json"
            run([*self.command(path), *settling(environment)], environment)
            result = json.loads(path.read_text())
        result["counts"] = self.counts(result)
        return result

    def counts(self, result):
        """Per measured step: hits, misses (requests that did not get the bytes that an active plan has for them), all requests."""
        after, before = result.get("stats"), result.get("stats_after_warmup")
        if not after or not before:
            return None
        per_step = lambda *names: sum(after[name] - before[name] for name in names) / len(result["steps"])  # noqa: E731
        return {
            "hits": per_step("hits"),
            "misses": per_step("lent", "misses_size", "misses_busy", "misses_lane"),
            "unplanned": per_step("unplanned"),
            "requests": per_step("requests"),
        }

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
    return all(one and one == longest[: len(one)] for one in losses)


def step_times(results):
    return [step["ms"] for result in results for step in result["steps"]]


def summary(results):
    """Median and quartiles of the step time, and the medians of faults and peak memory, over all runs given."""
    times = step_times(results)
    low, middle, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return {
        "step_ms": {"median": statistics.median(times), "p25": low, "p75": high, "min": min(times), "max": max(times)},
        "thread_ms_per_step": statistics.median(step["thread_ms"] for r in results for step in r["steps"]),
        "minor_faults_per_step": statistics.median(step["minor_faults"] for r in results for step in r["steps"]),
        "peak_rss_bytes": statistics.median(r["peak_rss_bytes"] for r in results),
        "user_seconds": statistics.median(r["user_seconds"] for r in results),
        "system_seconds": statistics.median(r["system_seconds"] for r in results),
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
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
    }


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
    line = lambda row: (
        "| "
        + " | ".join(  # noqa: E731
            (cell.ljust if i == 0 else cell.rjust)(widths[i]) for i, cell in enumerate(row)
        )
        + " |"
    )
    ruler = (
        "| " + " | ".join("-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)) + " |"
    )
    return "\n".join([line(header), ruler, *map(line, rows)])


def note(text):
    print(text, file=sys.stderr, flush=True)


class Report:
    """What bench/allocators and bench/recording have in common: options, a report of one answer a model, the two files it is kept in."""

    def __init__(self, name, doc, models, steps, warmup, rounds, output):
        self.name, self.models = name, models
        self.parser = argparse.ArgumentParser(
            prog=f"bench/{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        add = self.parser.add_argument
        add("--model", action="append", help=f"may be repeated (default: {' and '.join(models)})")
        add("--steps", type=int, default=steps, help="measured steps a run (default: %(default)s)")
        add("--warmup", type=int, default=warmup, help="steps before them (default: %(default)s)")
        add("--rounds", type=int, default=rounds, help="default: %(default)s")
        add("--threads", type=int, help="of libtorch (default: one a core)")
        add("--batch", type=int, help="samples a step (default: the model's own)")
        add("--data", type=pathlib.Path, default=ROOT / "build/data")
        add("--build-dir", type=pathlib.Path, default=ROOT / "build/release")
        add("--output", type=pathlib.Path, default=ROOT / "bench/results" / output, help="without suffix")
        add(
            "--smoke", action="store_true", help="the smallest form, for tests: writes nothing but --output where given"
        )

    def parse(self, argv):
        arguments = self.parser.parse_args(argv)
        if arguments.smoke:
            arguments.model, arguments.steps, arguments.warmup, arguments.rounds = ["mlp"], 2, 4, 1
            arguments.threads, arguments.batch = 1, 64  # two threads wait in busy loops where tests run side by side
        arguments.build_dir, arguments.data = arguments.build_dir.resolve(), arguments.data.resolve()
        return arguments

    def make(self, arguments, argv, measure, section):
        """measure(model, arguments, folder) gives a model's answer, section(answer) its markdown. Prints and keeps both; returns the answers."""
        with tempfile.TemporaryDirectory() as folder:
            answers = [measure(model, arguments, pathlib.Path(folder)) for model in arguments.model or self.models]
        report = {
            "command": shlex.join([f"bench/{self.name}", *argv]),
            "commit": commit(),
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "models": answers,
        }
        host = report["machine"]
        heading = (
            f"Commit {report['commit']}, {report['date']}, {host['cpu']}, {host['cores']} cores, "
            f"{host['memory_bytes'] / 2**30:.0f} GiB, {host['libc']}; `{report['command']}`"
        )
        text = "\n\n".join([heading, *map(section, answers)]) + "\n"
        if not arguments.smoke or "--output" in argv:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
            arguments.output.with_suffix(".md").write_text(text)
        print(text, end="")
        return answers


def run_main(name, main):
    """main(argv) as a program: failures in one line."""
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        sys.exit(f"{name}: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
