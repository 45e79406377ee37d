#!/usr/bin/env python3
"""Runs parts of PyTorch's own test suite under its allocator, then under berth, and prints what differs.

The tests come from a checkout of PyTorch at the tag of the installed torch, which --pytorch names; nothing of it is
built. Without a GPU they run on the stand-in (build/release/standin), with one on the GPU. What needs true values or
cannot run here is left out by tests/pytorch/exclusions.tsv, which gives each its reason. A crash or a hang is the
result of the test that it happened in; a test that does not pass beside others of its class is run again alone.

C++ tests are run from --programs, a folder with the test programs of PyTorch's own build of that tag (build/bin).

Exit code: 0 where PyTorch's allocator passes all that is run and berth does too; 1 otherwise, and where nothing is run; 2 for wrong usage; 3
where something is missing.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import exclusions  # noqa: E402
import report  # noqa: E402
import supervisor  # noqa: E402
from parts import PARTS  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REQUIREMENTS = pathlib.Path(__file__).resolve().parent / "requirements.txt"
# Preloaded, it makes berth the CUDA allocator of an unmodified program where BERTH_MODE is set.
BERTH_LIBRARY = "libberth_torch_cuda.so"
ALLOCATORS = ("native", "berth")


class Missing(Exception):
    """Something that the run needs is not there; ends with exit code 3."""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="tests/conformance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pytorch", metavar="DIR", type=pathlib.Path, help="the checkout; its folders test and test/inductor are used"
    )
    parser.add_argument(
        "--programs", metavar="DIR", type=pathlib.Path, help="PyTorch's C++ test programs; without it they are left out"
    )
    parser.add_argument(
        "--allocator", metavar="NAMES", default="native,berth", help="native, berth or both (default: %(default)s)"
    )
    parser.add_argument(
        "--only",
        metavar="TEXT",
        action="append",
        default=[],
        help="only tests whose PART:CLASS.METHOD contains TEXT; may be repeated",
    )
    parser.add_argument("--list", action="store_true", help="list the tests and what is left out, and run nothing")
    parser.add_argument(
        "--device", choices=("auto", "standin", "gpu"), default="auto", help="default: the GPU where there is one"
    )
    parser.add_argument(
        "--build",
        metavar="DIR",
        type=pathlib.Path,
        default=ROOT / "build" / "release",
        help="berth's build (default: build/release)",
    )
    parser.add_argument(
        "--python", metavar="FILE", default=str(ROOT / ".venv" / "bin" / "python"), help="an interpreter that has torch"
    )
    parser.add_argument("--mode", default="learn", help="BERTH_MODE for berth (default: %(default)s)")
    parser.add_argument(
        "--memory",
        choices=("auto", "virtual", "plain"),
        default="auto",
        help="BERTH_MEMORY for berth (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=120, help="of one test (default: %(default)s)"
    )
    parser.add_argument(
        "-j", "--jobs", type=int, default=min(os.cpu_count() or 2, 8), help="parts at once (default: %(default)s)"
    )
    parser.add_argument(
        "--any-version", action="store_true", help="go on where the checkout is of another version than torch"
    )
    parser.add_argument(
        "--no-install", action="store_true", help="say which packages are missing instead of installing them"
    )
    parser.add_argument("--output", metavar="FILE", type=pathlib.Path, help="write FILE.json and FILE.md")
    options = parser.parse_args(arguments)
    options.allocators = options.allocator.split(",")
    if not set(options.allocators) <= set(ALLOCATORS) or not options.allocators[0]:
        parser.error(f"--allocator is '{options.allocator}', wanted {' or '.join(ALLOCATORS)}, or both with a comma")
    if options.pytorch is None and options.programs is None:
        parser.error("--pytorch names the checkout of PyTorch")
    if options.pytorch is not None and not (options.pytorch / "test" / "test_cuda.py").is_file():
        parser.error(f"--pytorch is '{options.pytorch}', which holds no test/test_cuda.py")
    if options.programs is not None and not options.programs.is_dir():
        parser.error(f"--programs is '{options.programs}', which is no folder")
    # Tests run in folders of their own. The interpreter of a virtual environment is a link, and is not that any more behind it.
    for name in ("pytorch", "programs", "build"):
        if getattr(options, name) is not None:
            setattr(options, name, getattr(options, name).resolve())
    python = shutil.which(options.python)
    if python is None:
        parser.error(f"--python is '{options.python}', which is no program")
    options.python = os.path.abspath(python)
    if options.jobs < 1 or options.timeout <= 0:
        parser.error("--jobs and --timeout are at least 1")
    return options


class Suite:
    """What is the same for every test of a run: the device, the packages, the environment of each allocator."""

    def __init__(self, options):
        self.options = options
        self.packages = options.build.parent / "conformance" / "packages"
        self.torch, self.torch_library = self.find_torch()
        self.standin = self.needs_standin()
        self.berth = options.build / BERTH_LIBRARY
        if "berth" in options.allocators and not self.berth.is_file():
            raise Missing(f"berth's CUDA allocator is not built: no {self.berth}")
        self.checkout = self.checkout_version()
        if options.pytorch is not None:
            self.find_packages()
        self.exclusions = exclusions.load()
        self.lock = threading.Lock()

    def python(self, code):
        """What `code` prints, or None where it fails."""
        done = subprocess.run(
            [self.options.python, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        return done.stdout.strip() if done.returncode == 0 else None

    def find_torch(self):
        """Version and library folder, without an import: without NVIDIA's libraries a CUDA torch is imported on the stand-in only."""
        origin = self.python("import importlib.util; print(importlib.util.find_spec('torch').origin)")
        if origin is None:
            raise Missing(f"{self.options.python} has no torch")
        folder = pathlib.Path(origin).parent
        return re.search(r"__version__ = '([^']*)'", (folder / "version.py").read_text()).group(1), folder / "lib"

    def needs_standin(self):
        if self.options.device == "gpu":
            return False
        if self.options.device == "auto" and self.python("import torch; print(torch.cuda.is_available())") == "True":
            return False
        if not (self.options.build / "standin" / "berth-standin").is_file():
            raise Missing(f"the stand-in is not built: no standin/berth-standin in {self.options.build}")
        return True

    def checkout_version(self):
        """The version of the checkout, which has to be that of torch."""
        if self.options.pytorch is None:
            return None
        file = self.options.pytorch / "version.txt"
        version = file.read_text().strip() if file.is_file() else "unknown"
        if (
            re.match(r"[\d.]*", version).group().strip(".") != re.match(r"[\d.]*", self.torch).group()
            and not self.options.any_version
        ):
            raise Missing(
                f"the checkout is of version {version}, torch is {self.torch}; --any-version goes on all the same"
            )
        return version

    def find_packages(self):
        names = [
            re.match(r"[\w-]+", line).group() for line in REQUIREMENTS.read_text().splitlines() if re.match(r"\w", line)
        ]
        check = "import importlib.util; print(*[n for n in %r if importlib.util.find_spec(n) is None])" % (names,)

        def missing():
            return subprocess.run(
                [self.options.python, "-c", check],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "PYTHONPATH": str(self.packages)},
            ).stdout.strip()

        if missing() and not self.options.no_install:
            report.say(f"installing {missing()} into {self.packages}")
            subprocess.run(
                [
                    self.options.python,
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    "--disable-pip-version-check",
                    "--upgrade",
                    "--target",
                    str(self.packages),
                    "-r",
                    str(REQUIREMENTS),
                ],
                stdin=subprocess.DEVNULL,
            )
        if missing():
            raise Missing(f"these packages of tests/pytorch/requirements.txt are missing: {missing()}")

    def environment(self, allocator):
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("BERTH_", "PYTORCH_", "PYTEST", "TORCH_", "CUDA_"))
            and name not in ("CI", "LD_PRELOAD")
        }
        environment.update(
            PYTHONPATH=str(self.packages), PYTHONDONTWRITEBYTECODE="1", PYTORCH_PRINT_REPRO_ON_FAILURE="0"
        )
        environment["LD_LIBRARY_PATH"] = ":".join(
            filter(None, (str(self.torch_library), environment.get("LD_LIBRARY_PATH")))
        )
        if allocator == "berth":
            environment["BERTH_MODE"] = self.options.mode
            environment["BERTH_MEMORY"] = self.options.memory
            if not self.standin:
                environment["LD_PRELOAD"] = str(self.berth)
        if self.standin:
            environment["CONFORMANCE_VALUES"] = "ignored"
        return environment

    def target(self, part, allocator, folder):
        command = []
        if self.standin:
            command = [
                str(self.options.build / "standin" / "berth-standin"),
                "--devices",
                str(part.devices),
                "--pace",
                part.pace,
                "--copy-limit",
                str(64 << 20),
                *(["--preload", str(self.berth)] if allocator == "berth" else []),
                "--",
            ]
        if part.program:
            kind, file = supervisor.Program, self.options.programs and self.options.programs / part.file
        else:
            kind, file = supervisor.PythonFile, self.options.pytorch and self.options.pytorch / part.file
            command = [*command, self.options.python, "-B"]
        if file is None or not file.is_file():
            return None
        return kind(command, self.environment(allocator), file.resolve(), folder, self.options.timeout)


class Run:
    """One run: jobs of (part, allocator), their outcomes, and what is not run and why."""

    def __init__(self, suite, folder):
        self.suite, self.folder = suite, folder
        self.outcomes = {}  # test -> allocator -> Outcome
        self.excluded = {}  # test -> allocator -> reason
        self.broken = {}  # (part, allocator) -> why its tests could not be listed or run
        self.listings = {}  # file -> future of its tests
        self.lock = threading.Lock()

    def tests(self, part, target):
        """The names in the part's file; a file is imported once, under the first allocator that asks."""
        with self.lock:
            future = self.listings.get(part.file)
            mine = future is None
            if mine:
                future = self.listings[part.file] = concurrent.futures.Future()
        if mine:
            try:
                future.set_result(target.list())
            except Exception as error:
                future.set_exception(error)
        return [test for test in future.result() if part.wants(*test.split(".", 1))]

    def job(self, part, allocator):
        target = self.suite.target(part, allocator, self.folder)
        if target is None:
            self.broken[part.name, allocator] = f"there is no {part.file}"
            return
        try:
            names = self.tests(part, target)
            chosen = []
            for name in names:
                test = f"{part.name}:{name}"
                if self.suite.options.only and not any(text in test for text in self.suite.options.only):
                    continue
                reason = exclusions.reason(
                    self.suite.exclusions, test, self.suite.standin, allocator, self.suite.checkout
                )
                if reason is not None:
                    with self.lock:
                        self.excluded.setdefault(test, {})[allocator] = reason
                else:
                    chosen.append(name)
            if self.suite.options.list:
                with self.lock:
                    self.outcomes.update({f"{part.name}:{name}": {} for name in chosen})
                return
            if chosen:
                supervisor.run_part(
                    target, chosen, part.alone, lambda name, outcome: self.keep(part, name, allocator, outcome)
                )
                self.check_allocator(part, allocator, target)
        except supervisor.Broken as error:
            self.broken[part.name, allocator] = str(error)

    def check_allocator(self, part, allocator, target):
        """What a run under berth shows holds only if berth was the allocator."""
        if target.allocator is not None and (target.allocator == "native") != (allocator == "native"):
            raise Missing(f"part {part.name} ran under the allocator '{target.allocator}', wanted {allocator}")

    def keep(self, part, name, allocator, outcome):
        with self.lock:
            self.outcomes.setdefault(f"{part.name}:{name}", {})[allocator] = outcome
            if not outcome.good:
                report.say(f"{outcome.status}: {part.name}:{name} ({allocator})")

    def all(self):
        options = self.suite.options
        parts = [part for part in PARTS if (options.programs if part.program else options.pytorch) is not None]
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            jobs = [
                pool.submit(self.job, part, allocator)
                for part in parts
                for allocator in (options.allocators[:1] if options.list else options.allocators)
            ]
            for job in jobs:
                job.result()


def commit():
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main():
    options = parse(sys.argv[1:])
    try:
        suite = Suite(options)
        with tempfile.TemporaryDirectory(prefix="berth-conformance-") as folder:
            run = Run(suite, folder)
            run.all()
    except (Missing, ValueError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 3
    if options.list:
        report.print_list(run)
        return 0
    facts = {
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "torch": suite.torch,
        "checkout": suite.checkout,
        "device": "the stand-in"
        if suite.standin
        else suite.python("import torch; print(torch.cuda.get_device_name())"),
        "mode": options.mode,
        "allocators": options.allocators,
    }
    result = report.result(run, facts)
    report.print_result(result)
    if options.output is not None:
        options.output.with_suffix(".json").write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
        options.output.with_suffix(".md").write_text(report.markdown(result))
    return 0 if result["as_wanted"] else 1


if __name__ == "__main__":
    sys.exit(main())
