#!/usr/bin/env python3
"""Builds berth and runs all its tests, after set-up; closes with the line `N passed, N failed`.

First build/release with everything but benches and tests that take long, then build/asan (address and undefined behaviour) with what
serves memory. The second is built while the tests of the first run, with what they leave of the processors. With --all also benches and
the long tests, build/asan with all that needs no libtorch, and build/tsan (threads) with what of it is used by several threads. With
--long build/release with benches, and its long tests alone; bench/results/long_tests.md keeps what they gave. With folders of tests, such
as `tests/run pool`, build/release alone, and in it what these folders need. What cannot be built or counts no test is one failed test,
named in the output.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIGURATIONS = {
    "release": "everything",
    "asan": "address and undefined behaviour sanitizers",
    "tsan": "thread sanitizer, layers that threads use",
}


def folders():
    """Names of the folders of tests."""
    return sorted(path.parent.name for path in (ROOT / "tests").glob("*/CMakeLists.txt"))


class Runner:
    def __init__(self, jobs, everything, only_long=False, folders=()):
        self.jobs, self.everything, self.only_long, self.folders = jobs, everything, only_long, folders
        self.benches = everything or only_long or "bench" in folders
        self.start = time.monotonic()
        self.passed, self.failures, self.skipped = 0, [], 0
        self.cases = []  # name, outcome and seconds of each test

    def say(self, text):
        seconds = int(time.monotonic() - self.start)
        print(f"[{seconds // 60:2d}:{seconds % 60:02d}] {text}", flush=True)

    @staticmethod
    def prefix(name):
        """The thread sanitizer cannot map its shadow memory where addresses are randomized by more than 28 bits."""
        return ["setarch", "-R"] if name == "tsan" and shutil.which("setarch") else []

    def fail(self, name, reason):
        self.failures.append(name)
        self.say(f"FAILED {name}: {reason}")

    def command(self, arguments, log):
        """Runs one command into the file `log`; True if it succeeded."""
        with log.open("wb") as output:
            status = subprocess.run(
                arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            ).returncode
        return status == 0

    def tail(self, log, lines=60):
        text = log.read_text(errors="replace").splitlines()
        interesting = [line for line in text if re.search(r"error|FAILED|Error", line)][:20]
        print("\n".join(["  " + line for line in interesting + ["..."] + text[-lines:]]), flush=True)

    def targets(self, folder):
        """What the folders' tests need of a configured build; nothing: all of it, which tests of benches and installations run."""
        if not self.folders:
            return []
        help_text = subprocess.run(
            ["cmake", "--build", str(folder), "--target", "help"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        ).stdout
        names = [f"berth_tests_{name}" for name in self.folders]
        return names if all(re.search(rf"^(?:\.\.\. )?{name}\b", help_text, re.MULTILINE) for name in names) else []

    def build(self, name, beside_tests=False):
        """The folder of a built configuration, or None; beside tests with the lowest priority."""
        prefix = (["nice", "-n", "19"] if beside_tests else []) + self.prefix(name)
        folder = ROOT / "build" / name
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "tests-run.log"
        configure = [
            "cmake",
            "-S",
            ".",
            "-B",
            str(folder),
            "-G",
            "Ninja",
            "-C",
            f"cmake/{name}.cmake",
            "-DBERTH_BUILD_TESTS=ON",
        ]
        # For some folders' tests a tree stays as somebody configured it: another -Werror builds all of it anew.
        kept = bool(self.folders) and (folder / "CMakeCache.txt").exists()
        if not kept or os.environ.get("CI"):
            configure.append(f"-DBERTH_WERROR={'ON' if os.environ.get('CI') else 'OFF'}")
        if not kept or self.benches:
            configure.append(f"-DBERTH_BUILD_BENCH={'ON' if self.benches and name == 'release' else 'OFF'}")
        if name == "asan":
            configure.append(f"-DBERTH_KERNEL_ONLY={'OFF' if self.everything else 'ON'}")
        if shutil.which("ccache"):
            configure += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DCMAKE_C_COMPILER_LAUNCHER=ccache"]
            os.environ.setdefault("CCACHE_SLOPPINESS", "pch_defines,time_macros")  # keeps what uses precompiled headers
        self.say(f"{name}: configuring ({CONFIGURATIONS[name]})")
        if not self.command(configure, log):
            self.tail(log)
            self.fail(f"{name}: configure", f"see {log.relative_to(ROOT)}")
            return None
        self.say(f"{name}: building")
        # Goes on after an error, so that what was built is tested all the same.
        targets = self.targets(folder)
        ok = self.command(
            prefix
            + [
                "cmake",
                "--build",
                str(folder),
                "-j",
                str(self.jobs),
                *(["--target", *targets] if targets else []),
                "--",
                "-k",
                "0",
            ],
            log,
        )
        if not ok:
            self.tail(log)
            self.fail(f"{name}: build", f"see {log.relative_to(ROOT)}")
        if name == "release" and not self.folders:
            log = folder / "tests-run-headers.log"
            if self.command(
                ["cmake", "--build", str(folder), "-j", str(self.jobs), "--target", "all_verify_interface_header_sets"],
                log,
            ):
                self.passed += 1
            else:
                self.tail(log)
                self.fail("release: every public header compiles alone", f"see {log.relative_to(ROOT)}")
        return folder

    def test(self, name, folder):
        self.say(f"{name}: testing")
        report = folder / "tests-run.xml"
        report.unlink(missing_ok=True)
        arguments = (
            self.prefix(name)
            + [
                "ctest",
                "--test-dir",
                str(folder),
                "-j",
                str(self.jobs),
                "--no-tests=error",
                "--timeout",
                "900",
                "--output-junit",
                str(report),
            ]
            + (["-L", "^long$"] if self.only_long else [] if self.benches else ["-LE", "^long$"])
            + (["-L", f"^({'|'.join(self.folders)})$"] if self.folders else [])
        )
        environment = dict(os.environ, TEST_THOROUGH="1") if self.everything or self.only_long else None
        process = subprocess.Popen(
            arguments,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        shown = 0
        for line in process.stdout:
            match = re.match(r"\s*(\d+)/(\d+) Test", line)
            if match and time.monotonic() - shown > 10:
                shown = time.monotonic()
                self.say(f"{name}: {match.group(1)} of {match.group(2)} tests")
        status = process.wait()
        before = len(self.failures)
        counted = self.count(name, report)
        if counted == 0:
            self.fail(f"{name}: tests", "no test ran")
        elif status != 0 and len(self.failures) == before:
            self.fail(f"{name}: ctest", f"ended with {status}")

    def count(self, name, report):
        if not report.is_file():
            return 0
        counted = 0
        for case in xml.parse(report).getroot().iter("testcase"):
            counted += 1
            self.cases.append((case.get("name"), case.get("status"), float(case.get("time") or 0)))
            if case.get("status") == "run":
                self.passed += 1
            elif (
                case.get("status") in ("notrun", "disabled")
                and case.find("skipped") is not None
                and "SKIP_" in (case.find("skipped").get("message") or "")
            ):
                self.skipped += 1
                self.say(f"skipped {name}: {case.get('name')}")
            else:
                output = case.findtext("system-out") or ""
                print("\n".join("  " + line for line in output.splitlines()[-60:]), flush=True)
                self.fail(f"{name}: {case.get('name')}", case.get("status"))
        return counted

    def keep(self, page):
        """Writes a page with the outcome and the time of each test that ran."""
        git = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        lines = [
            "# tests/run --long",
            "",
            f"Commit {git.stdout.strip() or 'unknown'}, {time.strftime('%Y-%m-%d')}, {self.jobs} tests at a time on {os.cpu_count()} cores.",
            "",
            "| test | outcome | s |",
            "| --- | --- | ---: |",
        ]
        lines += [
            f"| {name} | {'passed' if status == 'run' else status} | {seconds:.0f} |"
            for name, status, seconds in sorted(self.cases)
        ]
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(
        prog="tests/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="of tests, such as pool; default: all")
    parser.add_argument("--quick", action="store_true", help="without the sanitizer builds")
    parser.add_argument("--all", action="store_true", help="also what takes long: two hours more on two cores")
    parser.add_argument("--long", action="store_true", help="what takes long alone; the result is kept")
    parser.add_argument("--no-setup", action="store_true", help="take the machine as it is")
    parser.add_argument("-j", "--jobs", type=int, default=min(os.cpu_count() or 2, 8), help="default: %(default)s")
    arguments = parser.parse_args()
    for name in arguments.folders:
        if name not in folders():
            parser.error(f"no folder of tests '{name}', there are: {', '.join(folders())}")
    if arguments.long and (arguments.all or arguments.folders):
        parser.error("--long is a run of its own: neither --all nor folders go with it")
    runner = Runner(arguments.jobs, arguments.all, arguments.long, arguments.folders)
    names = (
        ["release"]
        if arguments.quick or arguments.long or arguments.folders
        else list(CONFIGURATIONS)
        if arguments.all
        else ["release", "asan"]
    )
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        folder = runner.build(names[0])
        for name, following in zip(names, [*names[1:], None], strict=True):
            building = beside.submit(runner.build, following, beside_tests=True) if following else None
            if folder is not None:
                runner.test(name, folder)
            folder = building.result() if building else None
    if arguments.long:
        runner.keep(ROOT / "bench/results/long_tests.md")
    runner.say("done")
    for name in runner.failures:
        print(f"FAILED {name}")
    skipped = f", {runner.skipped} skipped" if runner.skipped else ""
    print(f"{runner.passed} passed, {len(runner.failures)} failed{skipped}")
    return 1 if runner.failures or runner.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
