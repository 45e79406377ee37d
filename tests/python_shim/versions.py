"""Builds berth for one torch after another and tries each; tests/versions --help says how.

For each version: an environment of its own with that torch, without NVIDIA's packages (0.5 GB to fetch), the package for Python and the
stand-in's libraries built for it with warnings as errors, and then programs on the CPU and on the stand-in, by that torch.
"""

import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
VERSIONS = ["2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
COMPANIONS = [
    "numpy",
    "filelock",
    "typing-extensions",
    "sympy",
    "mpmath",
    "networkx",
    "jinja2",
    "markupsafe",
    "fsspec",
    "setuptools",
    "nanobind",
    "psutil",
]
TORCH_TESTS = HERE.parent / "torch"
WITHOUT_TRAINERS = [
    "compile",
    "cuda_graphs",
    "mixed_precision_and_checkpoints",
    "ranks",
    "data_loaders",
    "profilers",
    "files",
    "notebooks",
]


def trials(build):
    """Name -> (command after the interpreter, launched on the stand-in with these options or None, environment)."""
    beside = [f"Beside.test_{name}" for name in WITHOUT_TRAINERS]
    found = {
        "Python on the CPU": ([HERE / "cpu_test.py"], None, {}),
        "Python on CUDA": ([HERE / "cuda_test.py"], None, {}),
        "programs as they are": ([HERE / "run_test.py", build / "berth"], None, {}),
        "beside PyTorch, CPU": ([HERE / "beside_test.py", "cpu", *beside], None, {}),
        "beside PyTorch, CUDA": ([HERE / "beside_test.py", "cuda", *beside], None, {}),
    }
    options = ["--copy-limit", "1048576", "--preload", build / "libberth_torch_cuda.so"]
    for topic in ("pools", "settings", "snapshot", "statistics", "streams"):
        found[f"CUDA memory: {topic}"] = (
            [TORCH_TESTS / f"cuda_{topic}_test.py", *(["cc"] if topic == "pools" else [])],
            options,
            {"TEST_ALLOCATOR": "berth", "BERTH_MODE": "learn"},
        )
    return found


def say(text):
    print(f"versions: {text}", flush=True)


def run(command, log, **environment):
    """The exit code and the seconds; what it wrote is in the file `log`."""
    start = time.monotonic()
    with log.open("w") as file:
        code = subprocess.run(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        ).returncode
    return code, time.monotonic() - start


def prepare(version, folder):
    """The interpreter that has this torch."""
    python = folder / "venv/bin/python3"
    if not (folder / "ready").exists():
        say(f"{version}: fetching it")
        for command in (
            [sys.executable, "-m", "venv", folder / "venv"],
            [
                python,
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                "--no-deps",
                f"torch=={version}",
                *COMPANIONS,
            ],
        ):
            code, _ = run(command, folder / "fetch.log")
            if code != 0:
                raise SystemExit(f"versions: cannot have torch {version}: see {folder / 'fetch.log'}")
        (folder / "ready").touch()
    return python


def build(version, folder, python, jobs):
    """None, or why it is not built."""
    (root,) = folder.glob("venv/lib/python3*/site-packages/torch")
    launchers = (
        [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
        if subprocess.run(["sh", "-c", "command -v ccache"], capture_output=True).returncode == 0
        else []
    )
    say(f"{version}: building")
    for command in (
        [
            "cmake",
            "-S",
            ROOT,
            "-B",
            folder / "build",
            "-G",
            "Ninja",
            "-C",
            ROOT / "cmake/release.cmake",
            "-DBERTH_WERROR=ON",
            "-DBERTH_BUILD_TESTS=OFF",
            "-DBERTH_BUILD_BENCH=OFF",
            "-DBERTH_BUILD_PYTHON=ON",
            "-DBERTH_WITH_TORCH=ON",
            f"-DBERTH_TORCH_ROOT={root}",
            f"-DPython_EXECUTABLE={python}",
            *launchers,
        ],
        ["cmake", "--build", folder / "build", "-j", jobs, "--target", "berth_package", "berth_standin_libraries"],
    ):
        code, _ = run(command, folder / "build.log")
        if code != 0:
            return f"see {folder / 'build.log'}"
    return None


def outcome(log, code):
    """What unittest counted: "12 passed", "11 passed, 1 failed"."""
    text = log.read_text(errors="replace")
    ran = re.search(r"^Ran (\d+) tests?", text, re.MULTILINE)
    if ran is None:
        return "did not run"
    counts = {
        kind: int(number)
        for kind, number in re.findall(r"(failures|errors|skipped|unexpected successes)=(\d+)", text[ran.end() :])
    }
    bad = sum(counts.get(kind, 0) for kind in ("failures", "errors", "unexpected successes"))
    words = [f"{int(ran.group(1)) - bad - counts.get('skipped', 0)} passed"]
    words += [f"{counts['skipped']} skipped"] if counts.get("skipped") else []
    words += [f"{bad} failed"] if bad else [] if code == 0 else [f"ended with {code}"]
    return ", ".join(words)


def attempt(version, arguments):
    """Name of a trial -> its outcome."""
    folder = arguments.folder / version.rsplit(".", 1)[0]
    folder.mkdir(parents=True, exist_ok=True)
    python = prepare(version, folder)
    reason = build(version, folder, python, arguments.jobs)
    if reason is not None:
        return {"built": f"no: {reason}"}
    results = {"built": "yes"}
    standin = folder / "build/standin/berth-standin"
    for name, (command, options, environment) in trials(folder / "build").items():
        launched = [standin, *options, "--", python, "-B", *command] if options else [python, "-B", *command]
        log = folder / (re.sub(r"\W+", "-", name) + ".log")
        code, seconds = run(launched, log, TEST_STANDIN=standin, PYTHONPATH=folder / "build/python", **environment)
        results[name] = outcome(log, code)
        say(f"{version}: {name}: {results[name]} ({seconds:.0f} s)")
    return results


def main():
    parser = argparse.ArgumentParser(
        prog="tests/versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", default=VERSIONS, help=f"of torch (default: {' '.join(VERSIONS)})")
    parser.add_argument(
        "--folder", type=pathlib.Path, default=ROOT / "build/versions", help="for environments and builds (1.5 GB each)"
    )
    parser.add_argument("--output", type=pathlib.Path, help="write the table to this file as well")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    results = {version: attempt(version, arguments) for version in arguments.versions}
    names = list(dict.fromkeys(name for one in results.values() for name in one))
    rows = [
        ["torch", *results],
        ["---"] * (len(results) + 1),
        *([name, *(one.get(name, "-") for one in results.values())] for name in names),
    ]
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    print(text)
    if arguments.output:
        arguments.output.write_text(
            f"# Versions of torch\n\n`tests/versions`, commit {commit}, {datetime.date.today().isoformat()}, on the stand-in. One source for "
            f"all, built with warnings as errors; what is tried is named in `tests/python_shim/versions.py`.\n\n{text}\n"
        )
    good = all(
        one.get("built") == "yes" and not re.search(r"failed|ended|did not", " ".join(one.values()))
        for one in results.values()
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
