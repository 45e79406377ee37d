#!/usr/bin/env python3
"""Fails where a lock in csrc is not in the table of how fork treats it. Usage: check_locks.py [ROOT]

Looked for, line by line: mutexes, what else threads wait at, and statics of functions that are made at the first call,
since a thread that comes meanwhile waits for them as for a lock. Left out are the stand-in, which no program links, and the
program `berth` with its replays, whose children are other programs.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from table import LOCKS  # noqa: E402

LEFT_OUT = {"standin", "cli", "replay"}
WAITED_FOR = re.compile(
    r"\b(?:std::(?:recursive_|shared_|timed_|recursive_timed_)*mutex|SpinMutex|SetupMutex|pthread_(?:mutex|rwlock|once)_t|sem_t"
    r"|std::once_flag|std::condition_variable(?:_any)?|std::atomic_flag|std::(?:counting|binary)_semaphore|std::latch|std::barrier)"
    r"\s+(\w+)"
)
LOCAL_STATIC = re.compile(
    r"^\s+(?:\[\[\w+\]\]\s+)?(?:static|thread_local static|static thread_local)\s+(?!constexpr\b|constinit\b|inline\b)"
    r"(?:[\w:<>,&*\s]|\(\*\))*?\b(\w+)(?:\[\w*\])?\s*(=|\{|$)(.*)$"
)
CONSTANT = re.compile(r"^\s*(?:nullptr|true|false|\d[\w']*|\{\s*\}|\"[^\"]*\")?\s*\}?\s*[;,].*$")


def code(path):
    """The lines of a file without comments and texts, with their numbers."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line)
        yield number, line.split("//")[0].rstrip()


def locks(path):
    """(line, name) of each lock that is declared in a file."""
    for number, line in code(path):
        match = WAITED_FOR.search(line)
        if match:
            yield number, match[1]
            continue
        match = LOCAL_STATIC.match(line)
        # Functions have brackets before anything else; what is made of constants alone is there before main.
        if match and not (match[2] and CONSTANT.match(match[3])):
            yield number, match[1]


def sources(root):
    for path in sorted((root / "csrc").rglob("*")):
        parts = path.relative_to(root / "csrc").parts
        if path.suffix in {".h", ".cc"} and parts[0] not in LEFT_OUT and "generated" not in parts:
            yield path


def violations(root, table=LOCKS):
    listed = {(lock.file, lock.name): lock for lock in table}
    found = set()
    for path in sources(root):
        file = path.relative_to(root).as_posix()
        for number, name in locks(path):
            found.add((file, name))
            if (file, name) not in listed:
                yield f"{file}:{number}: {name} is a lock that tests/locks/table.py does not know: what becomes of it in a fork?"
    for lock in table:
        if (lock.file, lock.name) not in found:
            yield f"tests/locks/table.py: {lock.file} has no lock {lock.name}"
        where = root / lock.where
        if not where.is_file() or lock.text not in where.read_text(encoding="utf-8"):
            yield f"tests/locks/table.py: {lock.file}: {lock.name} {lock.fork.value}: '{lock.text}' is not in {lock.where}"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent.parent
    found = list(violations(root))
    for line in found:
        print(line, file=sys.stderr)
    print(f"{len(LOCKS)} locks, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
