#!/usr/bin/env python3
"""Fails on a sentence of more than 30 words in what users read, and where a README links to nothing or names a file that is missing. Usage: check_prose.py [ROOT [FILE...]]

Read are the READMEs and the changelog, the comments of public headers (include/berth), the texts of the program and of errors
(literals of csrc), and those of the Python package (its docstrings and other literals). Code counts as one word, a link by its text.
Without files, all that git knows.
"""

import ast
import pathlib
import re
import subprocess
import sys

MOST = 30  # words of a sentence
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|al|cf)\.")
END = re.compile(r"(?<=[.!?])(?<!\.\.)[\"')*_]*(?:\s+|$)")
COMMAND = re.compile(r"\s+python -m ")  # an example in a help text
ENTRY = re.compile(r"\s*\S+(?: \S+)*?\s{2,}(?=\S)")  # of a list in a help text: a name, two spaces, what it is
NAMED = re.compile(r"`((?:bench|cmake|csrc|include|plans|python_shim|tests)/[\w./-]+)`")
LITERAL = re.compile(
    r'R"\((?P<raw>.*?)\)"|"(?P<plain>(?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)+\'|//[^\n]*|/\*.*?\*/', re.DOTALL
)


def sentences(text):
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    text = ABBREVIATION.sub(r"\1", text)
    return [sentence.strip() for sentence in END.split(text) if sentence.strip()]


def words(sentence):
    return sum(1 for word in sentence.split() if re.search(r"[A-Za-z0-9]", word))


class Paragraphs:
    """Lines gathered to paragraphs, each with the number of its first line."""

    def __init__(self):
        self.found, self.lines, self.start = [], [], 0

    def add(self, number, text):
        if not self.lines:
            self.start = number
        self.lines.append(text.strip())

    def end(self):
        if self.lines:
            self.found.append((self.start, " ".join(self.lines)))
        self.lines = []


def of_markdown(lines):
    """Paragraphs, items of lists and cells of tables; no code, no headings, no targets of links."""
    result, fenced = Paragraphs(), False
    for number, line in enumerate(lines, 1):
        bare = line.strip()
        if bare.startswith("```"):
            result.end()
            fenced = not fenced
        elif fenced:
            continue
        elif not bare or re.match(r"#|\[[^\]]+\]: ", bare) or (line.startswith("    ") and not result.lines):
            result.end()
        elif bare.startswith("|"):
            for cell in bare.strip("|").split(" | "):
                result.end()
                result.add(number, cell)
            result.end()
        else:
            item = re.match(r"(?:[-*>]|\d+\.)\s+", bare)
            if item:
                result.end()
            result.add(number, bare[item.end() :] if item else bare)
    result.end()
    return result.found


def of_comments(lines):
    """Paragraphs of the comments of C or C++. One behind code is a paragraph of its own, as far as comments alone continue it there."""
    result, block, behind = Paragraphs(), False, 0
    for number, line in enumerate(lines, 1):
        bare = line.strip()
        comment, opened = re.search(r"(?:^|\s)//+ ?(.*)$", line), re.search(r"/\*+ ?(.*)$", line)
        text = ""
        if block:
            text, block = re.sub(r"^\*+ ?", "", bare.split("*/")[0].strip()), "*/" not in line
        elif comment:
            column = line.index("//")
            if not bare.startswith("//"):
                result.end()
                behind = column
            elif behind not in (0, column):
                result.end()
                behind = 0
            text = comment.group(1)
        elif opened:
            result.end()
            text, block = opened.group(1).split("*/")[0], "*/" not in opened.group(1)
        if not comment:
            behind = 0
        if not text.strip() or text.startswith("   ") or re.match(r"\s*[-*]\s", text):
            result.end()
        if text.strip():
            result.add(number, text)
    result.end()
    return result.found


def of_help(number, text):
    """Paragraphs of a text for a terminal. An entry of a list (name, two spaces, text) begins one."""
    result = Paragraphs()
    for line in text.split("\n"):
        entry = ENTRY.match(line)
        if not line.strip() or entry or COMMAND.match(line):
            result.end()
        if line.strip() and not COMMAND.match(line):
            result.add(number, line[entry.end() :] if entry else line)
    result.end()
    return result.found


def of_literals(source):
    """Paragraphs of the literals of C++; neighbours are one text."""
    found, text, start, last = [], "", 0, 0
    for match in LITERAL.finditer(source):
        raw, plain = match.group("raw"), match.group("plain")
        if raw is None and plain is None:
            continue
        if source[last : match.start()].strip():
            found += of_help(start, text)
            text = ""
        if not text:
            start = source.count("\n", 0, match.start()) + 1
        text += raw if plain is None else plain.replace("\\n", "\n").replace('\\"', "'")
        last = match.end()
    return found + of_help(start, text)


def of_python(source):
    """Paragraphs of the docstrings and other literals of Python. A value in an f-string counts as one word."""
    found, parts = [], set()
    for node in ast.walk(ast.parse(source)):  # an f-string comes before its parts
        text = ""
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            text = "".join(part.value if isinstance(part, ast.Constant) else "code" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            text = node.value
        found += of_help(node.lineno, text) if text else []
    return found


def paragraphs(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return of_python(text)
    if path.suffix == ".md":
        return of_markdown(text.splitlines())
    if "include" in path.parts:
        return of_comments(text.splitlines())
    return of_literals(text)


def too_long(path):
    """(line, words, sentence) of each sentence of a file that has too many words."""
    for number, text in paragraphs(path):
        for sentence in sentences(text):
            if words(sentence) > MOST:
                yield number, words(sentence), sentence


def broken_links(path, root):
    """(line, target) of each link to a file that is missing or lies outside the repository, or to a heading that is missing."""
    text = re.sub(
        r"^```.*?^```",
        lambda code: "\n" * code.group().count("\n"),
        path.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    text = re.sub(r"`[^`\n]*`", "", text)
    for match in re.finditer(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", text, re.MULTILINE):
        target = match.group(1) or match.group(2)
        name, _, anchor = target.partition("#")
        if re.match(r"https?:", target):
            continue
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or not file.is_relative_to(root) or anchor and anchor not in headings(file):
            yield text.count("\n", 0, match.start()) + 1, target


def missing_files(path, root):
    """(line, name) of each path from a top folder of the repository, in code, that is no file, no folder and no file without its ending."""
    text = path.read_text(encoding="utf-8")
    for match in NAMED.finditer(text):
        name = match.group(1)
        file = root / name
        if "NAME" not in name and not file.exists() and not list(file.parent.glob(f"{file.name}.*")):
            yield text.count("\n", 0, match.start()) + 1, name


def headings(path):
    """The names by which a page's headings are linked to."""
    found = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def is_read(name):
    path = pathlib.PurePath(name)
    return (
        path.name in ("README.md", "CHANGELOG.md")
        or name.startswith("include/berth/")
        or name.startswith(("csrc/", "python_shim/module/"))
        and path.suffix in (".cc", ".h")
        and path.parent.name != "generated"
        or name.startswith(("python_shim/berth/", "python_shim/backend/"))
        and path.suffix == ".py"
    )


def files(root):
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=False
    )
    names = (
        listed.stdout.splitlines()
        if listed.returncode == 0
        else [
            path.relative_to(root).as_posix()
            for path in root.rglob("*")
            if not {"build", ".venv"} & set(path.relative_to(root).parts)
        ]
    )
    return [root / name for name in sorted(names) if is_read(name) and (root / name).is_file()]


def violations(root, paths):
    for path in paths:
        name = path.relative_to(root).as_posix()
        yield from (f"{name}:{number}: {count} words: {sentence}" for number, count, sentence in too_long(path))
        if path.suffix == ".md":
            yield from (
                f"{name}:{number}: links to {target}, which is not there" for number, target in broken_links(path, root)
            )
        if path.name == "README.md":
            yield from (
                f"{name}:{number}: names {target}, which is not there" for number, target in missing_files(path, root)
            )


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(violations(root, [pathlib.Path(name).resolve() for name in sys.argv[2:]] or files(root)))
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
