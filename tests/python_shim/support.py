"""What the tests of the package share: programs of their own process, on the stand-in."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

from forks import READ_AT_START, Forks

STANDIN = os.environ["TEST_STANDIN"]
# For programs: what they all import, and a function that waits until a step is learned.
PREAMBLE = """
import gc, json, sys, time
import torch
torch.manual_seed(0)
torch.set_num_threads(1)

def hits_of(step, tries=2000, device=None):
    '''Share of hits of a step once it is learned, and the marks that it makes.'''
    share = 0.0
    for _ in range(tries):
        before = berth.stats(device)
        step()
        after = berth.stats(device)
        share = (after.hits - before.hits) / max(1, after.requests - before.requests)
        if share > 0.98:
            break
        time.sleep(0.005)
    return share, after.steps - before.steps
"""


def run(
    command,
    *,
    folder=None,
    standin=("--copy-limit", "1048576"),
    timeout=300,
    stdin=subprocess.DEVNULL,
    fork=True,
    **variables,
):
    """A command on the stand-in; a variable that is None is not there. Programs in Python find torch imported, but without `fork`."""
    command = [str(word) for word in command]
    environment = {
        name: value
        for name, value in {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **variables}.items()
        if value is not None
    }
    start = (STANDIN, *standin, "--")
    if fork and command[0] == sys.executable and command[1].endswith(".py") and not any(map(read_at_start, variables)):
        return forks_of(start).run(command[1:], folder=folder, timeout=timeout, stdin=stdin, environment=environment)
    return subprocess.run(
        [*start, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        stdin=stdin,
        preexec_fn=heed_interrupts,
    )


def read_at_start(name):
    return name.startswith(READ_AT_START)


# One for each way to start a Python that the tests of a process have.
forks_of = functools.cache(Forks)


def heed_interrupts():
    """Shells let what they start behind them ignore Ctrl-C, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class ProgramCase(unittest.TestCase):
    """Tests that write programs into a folder of their own and run them."""

    maxDiff = 4000

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def python(self, text, *arguments, code=0, name="program.py", **options):
        """Runs a program; returns what it printed, and checks its exit code."""
        path = self.write(name, text)
        result = run([sys.executable, path, *arguments], folder=self.folder, **options)
        self.assertEqual(result.returncode, code, (result.stdout + result.stderr)[-4000:])
        self.stderr = result.stderr
        return result.stdout

    def ran(self, command, *, code=0, **options):
        """Runs a command in the folder; returns what it printed, and checks its exit code."""
        result = run(command, folder=self.folder, **options)
        self.assertEqual(result.returncode, code, (result.stdout + result.stderr)[-4000:])
        self.stderr = result.stderr
        return result.stdout
