"""scikit-build-core's build backend, with progress: pip keeps what a build prints to itself, and compiling berth takes minutes.

What the build prints passes through as it is. Where there is a terminal, each tenth of it is told there too. Without a terminal `pip -v`
shows the whole.
"""

import contextlib
import os
import re
import threading

from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F401,F403

_DONE = re.compile(rb"\[\s*(?:(\d+)/(\d+)|(\d+)%)\]")  # of ninja, of make


def _tenth(line):
    """How many tenths are done by a line of ninja or make; None where it is none."""
    found = _DONE.match(line)
    if found is None:
        return None
    done, all_of_them, percent = (int(group) if group else 0 for group in found.groups())
    return percent // 10 if found[3] else 10 * done // max(all_of_them, 1)


@contextlib.contextmanager
def _progress():
    try:
        terminal = open("/dev/tty", "w")
    except OSError:
        yield
        return
    output = os.dup(1)
    read, write = os.pipe()
    os.dup2(write, 1)
    os.close(write)

    def pass_on():
        said = 0
        with open(read, "rb") as lines, open(output, "wb", buffering=0, closefd=False) as further:
            for line in lines:
                further.write(line)
                tenth = _tenth(line)
                if tenth is not None and tenth > said:
                    said = tenth
                    print(f"\n  berth: {10 * tenth} % compiled ", end="", file=terminal, flush=True)

    thread = threading.Thread(target=pass_on)
    thread.start()
    try:
        yield
    finally:
        os.dup2(output, 1)  # closes the pipe's last end
        thread.join()
        os.close(output)
        terminal.close()


def build_wheel(*arguments, **named):
    with _progress():
        return _build.build_wheel(*arguments, **named)


def build_editable(*arguments, **named):
    with _progress():
        return _build.build_editable(*arguments, **named)
