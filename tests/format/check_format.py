#!/usr/bin/env python3
"""Fails where a source is not formatted as its tool formats it. Usage: check_format.py cpp|python [ROOT] [--fix]

cpp: clang-format and .clang-format. python: ruff format and .ruff.toml. Versions format differently, so only those of
cmake/format-requirements.txt are taken, from .venv (cmake/setup installs them) or from PATH. Ends with 77 where there is none: a skip.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

SUFFIXES = {"cpp": (".cc", ".h", ".c"), "python": (".py",)}
TOOLS = {"cpp": "clang-format", "python": "ruff"}
SKIPPED = 77
AT_ONCE = 100  # files in a call


def files(root, language):
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
    return sorted(
        name
        for name in names
        if name.endswith(SUFFIXES[language]) and "/generated/" not in name and (root / name).is_file()
    )


def wanted_version(root, tool):
    text = (root / "cmake/format-requirements.txt").read_text(encoding="utf-8")
    return re.search(rf"^{tool}==(\S+)$", text, re.MULTILINE)[1]


def find_tool(root, tool):
    """The tool's path; None where only other versions are here. In words, why."""
    wanted, found = wanted_version(root, tool), []
    for path in (root / ".venv/bin" / tool, shutil.which(f"{tool}-{wanted.partition('.')[0]}"), shutil.which(tool)):
        if path is None or not pathlib.Path(path).exists():
            continue
        said = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"\d+(?:\.\d+)+", said)
        if version and version[0] == wanted:
            return str(path), ""
        found.append(f"{path} is {version[0] if version else 'of no version'}")
    return None, f"no {tool} {wanted}: cmake/setup installs it" + "".join(f"; {other}" for other in found)


def unformatted(root, language, tool, names):
    """Names of the files that the tool would change. Raises where the tool fails."""
    found = []
    for first in range(0, len(names), AT_ONCE):
        some = names[first : first + AT_ONCE]
        options = (
            ["--dry-run", "--Werror", "-ferror-limit=0"]
            if language == "cpp"
            else ["format", "--check", "--force-exclude"]
        )
        done = subprocess.run([tool, *options, *some], cwd=root, capture_output=True, text=True, check=False)
        pattern = r"^(.+?):\d+:\d+: error:" if language == "cpp" else r"^Would reformat: (.+)$"
        lines = re.findall(pattern, done.stdout + done.stderr, re.MULTILINE)
        if done.returncode != 0 and not lines:
            raise RuntimeError(f"{tool} ended with {done.returncode}: {done.stderr.strip()}")
        found += dict.fromkeys(lines)
    return found


def fix(root, language, tool, names):
    options = ["-i"] if language == "cpp" else ["format", "--quiet", "--force-exclude"]
    for first in range(0, len(names), AT_ONCE):
        subprocess.run([tool, *options, *names[first : first + AT_ONCE]], cwd=root, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", choices=sorted(TOOLS))
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--fix", action="store_true", help="format the files instead")
    arguments = parser.parse_args()
    root, language = arguments.root.resolve(), arguments.language
    tool, why = find_tool(root, TOOLS[language])
    if tool is None:
        print(why)
        return SKIPPED
    names = files(root, language)
    if not names:
        print(f"no files of {language} in {root}")
        return 1
    if arguments.fix:
        fix(root, language, tool, names)
        return 0
    found = unformatted(root, language, tool, names)
    for name in found:
        print(f"{name}: is not as {TOOLS[language]} formats it")
    if found:
        print(f"python3 tests/format/check_format.py {language} --fix formats {len(found)} of {len(names)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
