#!/usr/bin/env python3
"""Fails where a library has a static that is destroyed at exit. Usage: check_statics.py NM LIBRARY...

The planner's thread, the recorder's, and those of the program run while exit() destroys statics, and blocks are freed by
static destructors of others: what they read must be there still. Such a static is registered by __cxa_atexit. One that is
never destroyed is made by `new`, or needs no destructor. A thread_local is destroyed with its thread, and is no matter.
"""

import pathlib
import re
import subprocess
import sys

REGISTERS = re.compile(r"\bU __cxa_atexit\b")
GUARD = re.compile(r"guard variable for (.+)$")


def listing(nm, library):
    return subprocess.run([nm, "-C", str(library)], check=True, capture_output=True, text=True).stdout


def violations(text, library):
    """One line for each object of a library that registers a destructor, with the statics that it may be of."""
    name = library
    statics = []
    registers = False

    def told():
        if registers:
            yield f"{library}: {name} registers a destructor for exit(): {', '.join(statics) or 'a static outside of functions'}"

    for line in text.splitlines():
        if line.endswith(":") and " " not in line:
            yield from told()
            name, statics, registers = line[:-1], [], False
        registers |= bool(REGISTERS.search(line))
        if guard := GUARD.search(line):
            statics.append(guard[1])
    yield from told()


def main():
    nm, *libraries = sys.argv[1:]
    found = [line for library in libraries for line in violations(listing(nm, library), pathlib.Path(library).name)]
    for line in found:
        print(line, file=sys.stderr)
    print(f"{len(libraries)} libraries, {len(found)} violations")
    return 1 if found or not libraries else 0


if __name__ == "__main__":
    sys.exit(main())
