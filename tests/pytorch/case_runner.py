"""Runs tests of one file of PyTorch's checkout in this process, and writes what happens as lines of JSON.

Usage: case_runner.py FILE EVENTS [CLASS.METHOD...]

The first line names the allocator and the tests that the file has; a line is written and flushed before a test starts
and after it ends, so whoever reads them knows which test a crash happened in. Without a test: the first line only.
"""

import importlib.util
import json
import os
import pathlib
import sys
import time
import unittest

import values


def leaves(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from leaves(test)
        else:
            yield test


class Recorder(unittest.TestResult):
    def __init__(self, write):
        super().__init__()
        self.write = write
        self.status, self.detail = "passed", ""

    def startTest(self, test):
        super().startTest(test)
        self.status, self.detail, self.start = "passed", "", time.monotonic()
        self.write({"event": "start", "test": name_of(test)})

    def stopTest(self, test):
        self.write(
            {
                "event": "end",
                "test": name_of(test),
                "status": self.status,
                "detail": self.detail[-6000:],
                "seconds": round(time.monotonic() - self.start, 3),
            }
        )
        super().stopTest(test)

    def worst(self, status, detail):
        if self.status in ("passed", "skipped"):
            self.status, self.detail = status, detail

    def addFailure(self, test, error):
        self.worst("failed", self._exc_info_to_string(error, test))

    def addError(self, test, error):
        if not hasattr(test, "_testMethodName"):  # of a class or module: none of its tests starts
            self.write({"event": "fixture", "test": str(test), "detail": self._exc_info_to_string(error, test)[-6000:]})
            return
        self.worst("failed", self._exc_info_to_string(error, test))

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.worst("failed", f"{subtest}\n" + self._exc_info_to_string(error, test))

    def addSkip(self, test, reason):
        self.worst("skipped", reason)

    def addExpectedFailure(self, test, error):
        self.worst("failed as expected", "")

    def addUnexpectedSuccess(self, test):
        self.worst("failed", "passed, though PyTorch expects it to fail")


def name_of(test):
    return f"{type(test).__name__}.{test._testMethodName}"


def main():
    file, events, wanted = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    output = open(events, "a", encoding="utf-8")

    def write(event):
        output.write(json.dumps(event) + "\n")
        output.flush()

    # As if the file had been started: its folder first, for the modules beside it and for processes that it spawns.
    sys.argv = [str(file)]
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except unittest.SkipTest as reason:
        write({"event": "module", "tests": [], "skipped": str(reason)})
        return
    if os.environ.get("CONFORMANCE_VALUES") == "ignored":
        values.ignore()
    import torch
    import torch.cuda._memory_viz as viz

    # It would fetch the script that draws a picture of the lines.
    viz.format_flamegraph.__code__ = (lambda flamegraph_lines, flamegraph_script=None: flamegraph_lines).__code__
    loader = unittest.TestLoader()
    tests = {name_of(test): test for test in leaves(loader.loadTestsFromModule(module))}
    write({"event": "module", "tests": list(tests), "allocator": torch.cuda.get_allocator_backend()})
    unittest.TestSuite([tests[name] for name in wanted]).run(Recorder(write))


if __name__ == "__main__":
    main()
