"""Where mutants change the sources: comments `// mutant: NAME, ..` that stand before a statement, and changes of it.

A point concerns the statements behind it. A statement ends at its semicolon. That of a condition or a loop ends where
its block begins, or with the one statement that it controls.
"""

import dataclasses
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = ("csrc/**/*.h", "csrc/**/*.cc", "include/**/*.h")
_POINT = re.compile(r"^[ \t]*// mutant: ([a-z0-9-]+(?:, [a-z0-9-]+)*)\n", re.MULTILINE)
_COMMENT = re.compile(r"\s+|//[^\n]*\n|/\*.*?\*/", re.DOTALL)
_LITERAL = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')
# What stands before the brace of a block, not of a value.
_HEAD = re.compile(r"(?:\)|\belse|\bdo|\btry|\bconst|\bnoexcept|\boverride|->\s*[\w:<>]+|\[\[\w+\]\])\s*$")
_CONDITION = re.compile(r"(?:\}\s*)?(?:else\s+)?(?:if(?:\s+constexpr)?|while)\s*\(")


class Lost(Exception):
    """A point or what a mutant changes there is not in the sources."""


@dataclasses.dataclass(frozen=True)
class Point:
    file: str  # in the tree
    begin: int  # behind the comment


@functools.lru_cache
def points(root=ROOT):
    """Of each name its points, in all sources."""
    found = {}
    for pattern in SOURCES:
        for path in sorted(root.glob(pattern)):
            for match in _POINT.finditer(path.read_text(encoding="utf-8")):
                for name in match[1].split(", "):
                    found.setdefault(name, []).append(Point(str(path.relative_to(root)), match.end()))
    return found


def _skip(text, at):
    while match := _COMMENT.match(text, at):
        at = match.end()
    return at


def _close(text, at):
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    while at < len(text):
        if match := _LITERAL.match(text, at) or _COMMENT.match(text, at):
            at = match.end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
        if depth == 0:
            return at
    raise Lost("a bracket is not closed")


def statement(text, at):
    """Where the next statement begins and ends."""
    begin = at = _skip(text, at)
    if text[at : at + 1] == "}":
        at += 1
    while at < len(text):
        if match := _LITERAL.match(text, at) or _COMMENT.match(text, at):
            at = match.end()
        elif text[at] in "([":
            at = _close(text, at)
        elif text[at] == "{":
            if _HEAD.search(text, begin, at):
                return begin, at + 1
            at = _close(text, at)
        elif text[at] == ";":
            return begin, at + 1
        elif text[at] in ")]}":
            break
        else:
            at += 1
    raise Lost(f"no statement ends behind {text[begin : begin + 40]!r}")


@dataclasses.dataclass(frozen=True)
class Drop:
    """The statements behind the point are removed."""

    statements: int = 1

    def change(self, text):
        return ""


@dataclasses.dataclass(frozen=True)
class Replace:
    """Other text stands in the place of the statements behind the point."""

    new: str
    statements: int = 1

    def change(self, text):
        return self.new


@dataclasses.dataclass(frozen=True)
class Condition:
    """The condition of the statement behind the point has this value."""

    value: str
    statements: int = 1

    def change(self, text):
        if not (match := _CONDITION.match(text)):
            raise Lost("no condition stands there")
        end = _close(text, match.end() - 1)
        return text[: match.end()] + self.value + text[end - 1 :]


NEVER, ALWAYS = Condition("false"), Condition("true")


@dataclasses.dataclass(frozen=True)
class Swap:
    """In the statements behind the point `new` stands in the place of `old`, which is there once."""

    old: str
    new: str
    statements: int = 1

    def change(self, text):
        if text.count(self.old) != 1:
            raise Lost(f"{self.old!r} is there {text.count(self.old)} times, wanted once")
        return text.replace(self.old, self.new)


def changed(name, change, root=ROOT):
    """The file of the point with this name, and its text with the change. Raises Lost."""
    there = points(root).get(name, [])
    if len(there) != 1:
        raise Lost(f"the comment `// mutant: {name}` is in the sources {len(there)} times, wanted once")
    text = (root / there[0].file).read_text(encoding="utf-8")
    begin = end = there[0].begin
    for n in range(change.statements):
        first, end = statement(text, end)
        if n == 0:
            begin = first
    return there[0].file, text[:begin] + change.change(text[begin:end]) + text[end:]
