"""Runs the tests of one part under one allocator: processes that may crash or hang, and what became of each test."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

RUNNER = pathlib.Path(__file__).resolve().parent / "case_runner.py"
START_SECONDS = 300  # importing torch and the file, on a busy machine
POLL_SECONDS = 0.05


@dataclasses.dataclass
class Outcome:
    status: str  # passed, failed, crashed, timed out, skipped, failed as expected
    seconds: float = 0.0
    detail: str = ""
    alone: bool = False  # run again in a process of its own, since it did not pass beside the others

    @property
    def good(self):
        return self.status in ("passed", "skipped", "failed as expected")


class Broken(Exception):
    """The tests of a file could not be listed or run at all."""


class Process:
    """A process in a group of its own, its output in a file."""

    def __init__(self, command, environment, folder):
        self.output = tempfile.NamedTemporaryFile(dir=folder, suffix=".log")
        self.process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ended(self):
        return self.process.poll() is not None

    def end(self):
        """Ends what is left of the group, children that a test forgot included."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def tail(self, size=4000):
        text = pathlib.Path(self.output.name).read_bytes()[-size:]
        return text.decode(errors="replace")

    def how_it_ended(self):
        code = self.process.returncode
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class PythonFile:
    """The tests of one Python file, through case_runner.py."""

    def __init__(self, command, environment, file, folder, timeout):
        self.command, self.environment, self.file, self.folder, self.timeout = (
            command,
            environment,
            file,
            folder,
            timeout,
        )
        self.allocator = None

    def list(self):
        """The tests of the file; raises Broken if it cannot be imported."""
        events = self.run([], lambda *_: None)
        if not events or events[0]["event"] != "module":
            raise Broken(self.last_output)
        if events[0].get("skipped"):
            raise Broken(f"skipped as a whole: {events[0]['skipped']}")
        return events[0]["tests"]

    def run(self, tests, on_end):
        """One process for `tests`, until it ends by itself or by ours; returns its events."""
        events, pending, started = [], "", time.monotonic()
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".events") as stream:
            process = Process(
                [*self.command, str(RUNNER), str(self.file), stream.name, *tests], self.environment, self.folder
            )
            reader = open(stream.name, encoding="utf-8")
            try:
                while True:
                    ended = process.ended()  # before the last read
                    pending += reader.read()
                    *lines, pending = pending.split("\n")
                    for line in lines:
                        events.append(json.loads(line))
                        started = time.monotonic()
                    if ended:
                        break
                    in_test = events and events[-1]["event"] == "start"
                    if time.monotonic() - started > (self.timeout if in_test else max(self.timeout, START_SECONDS)):
                        process.end()
                        if in_test:
                            events.append(
                                {
                                    "event": "end",
                                    "test": events[-1]["test"],
                                    "status": "timed out",
                                    "seconds": self.timeout,
                                    "detail": process.tail(),
                                }
                            )
                        break
                    time.sleep(POLL_SECONDS)
            finally:
                reader.close()
                process.end()
            fixtures = [event["detail"] for event in events if event["event"] == "fixture"]
            self.last_output = "\n".join([process.tail(), *fixtures])
            if events and events[-1]["event"] == "start":
                events.append(
                    {
                        "event": "end",
                        "test": events[-1]["test"],
                        "status": "crashed",
                        "seconds": round(time.monotonic() - started, 3),
                        "detail": f"{process.how_it_ended()}\n{self.last_output}",
                    }
                )
        for event in events:
            if event["event"] == "module":
                self.allocator = event.get("allocator")
            if event["event"] == "end":
                on_end(event["test"], Outcome(event["status"], event["seconds"], event["detail"]))
        return events


class Program:
    """The tests of one gtest program, a process each."""

    def __init__(self, command, environment, file, folder, timeout):
        self.command, self.environment, self.file, self.folder, self.timeout = (
            command,
            environment,
            file,
            folder,
            timeout,
        )
        self.allocator = None  # a C++ program does not say

    def list(self):
        done = subprocess.run(
            [*self.command, str(self.file), "--gtest_list_tests"],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=START_SECONDS,
        )
        if done.returncode != 0:
            raise Broken((done.stdout + done.stderr)[-4000:])
        tests, suite = [], ""
        for line in done.stdout.splitlines():
            name = line.split("#")[0].rstrip()
            if name.endswith(".") and not name.startswith(" "):
                suite = name
            elif name.startswith("  ") and suite:
                tests.append(suite + name.strip())
        return tests

    def run(self, tests, on_end):
        for test in tests:
            start = time.monotonic()
            process = Process([*self.command, str(self.file), f"--gtest_filter={test}"], self.environment, self.folder)
            while not process.ended() and time.monotonic() - start < self.timeout:
                time.sleep(POLL_SECONDS)
            timed_out = not process.ended()
            process.end()
            code, text = process.process.returncode, process.tail()
            if timed_out:
                status = "timed out"
            elif code == 0:
                status = "skipped" if "[  SKIPPED ]" in text else "passed"
            else:
                status = "failed" if code == 1 else "crashed"
            detail = "" if status == "passed" else f"{process.how_it_ended()}\n{text}"
            on_end(test, Outcome(status, round(time.monotonic() - start, 3), detail))
        return []


def run_part(target, tests, alone, on_end):
    """Every one of `tests`, whatever crashes. What does not pass beside others is run again in a process of its own."""
    outcomes = {}

    def keep(test, outcome):
        outcomes[test] = outcome

    left = list(tests)
    while left:
        before = len(left)
        target.run(left[:1] if alone else left, keep)
        left = [test for test in left if test not in outcomes]
        if len(left) == before:  # it died before its next test, or its class could not be set up
            outcomes[left[0]] = Outcome("crashed", 0.0, f"ended before the test began\n{target.last_output}")
            left.pop(0)
    if not alone and not isinstance(target, Program) and len(tests) > 1:
        for test in [test for test, outcome in outcomes.items() if not outcome.good]:
            again = {}
            target.run([test], again.__setitem__)
            if test in again:
                outcomes[test] = dataclasses.replace(again[test], alone=True)
    for test, outcome in outcomes.items():
        on_end(test, outcome)
