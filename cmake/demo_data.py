#!/usr/bin/env python3
"""Puts the demo's two data sets into a folder, from packages that ship them.

digits.csv  the UCI hand-written digits (1797 rows of 64 pixels 0..16 and the label), from the scikit-learn wheel
text.txt    the six novels of Jane Austen, in the public domain (4 MB of ASCII), from Debian's r-cran-janeaustenr

Only these two files are taken out of the packages: neither scikit-learn nor R is installed, and no root is needed.
What is there already is left alone. Usage: demo_data.py FOLDER [--check]
"""

import argparse
import gzip
import io
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

SCIKIT_LEARN = "scikit-learn==1.6.1"
NOVELS_PACKAGE = "r-cran-janeaustenr"
FILES = ("digits.csv", "text.txt")


def fail(message):
    sys.exit(f"demo_data: {message}")


def run(command, folder, what):
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        fail(f"{what} failed: {' '.join(command)}\n{result.stderr.strip()[-1000:]}")


def digits(scratch, python):
    """The text of digits.csv. The wheel is asked for by platform, so any interpreter's pip will do."""
    run(
        [
            python,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            "3.11",
            "--platform",
            "manylinux2014_x86_64",
            "-d",
            ".",
            SCIKIT_LEARN,
        ],
        scratch,
        "downloading the digits",
    )
    wheels = list(scratch.glob("scikit_learn-*.whl"))
    if len(wheels) != 1:
        fail(f"expected one wheel of {SCIKIT_LEARN}, got {len(wheels)}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        rows = gzip.decompress(wheel.read("sklearn/datasets/data/digits.csv.gz"))
    lines = rows.decode("ascii").split()
    if len(lines) != 1797 or any(line.count(",") != 64 for line in lines):
        fail(f"digits.csv in {SCIKIT_LEARN} is not 1797 rows of 65 numbers")
    return rows


def character_vector(record):
    """The strings of one serialized R character vector (XDR form), NA as an empty line."""
    stream = io.BytesIO(record)

    def integer():
        data = stream.read(4)
        if len(data) != 4:
            fail("the novels end too early")
        return struct.unpack(">i", data)[0]

    if stream.read(2) != b"X\n":
        return None
    version, _, _ = integer(), integer(), integer()
    if version >= 3:
        stream.read(integer())  # the name of the native encoding
    if integer() & 0xFF != 16:  # STRSXP
        return None
    lines = []
    for _ in range(integer()):
        if integer() & 0xFF != 9:  # CHARSXP
            fail("the novels hold something that is not a string")
        length = integer()
        lines.append(stream.read(length).decode("utf-8") if length >= 0 else "")
    return lines


def novels(scratch, _):
    """The text of the novels: R's lazy-load file is records of a big-endian length and a zlib stream."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            fail(f"{tool} is needed to fetch {NOVELS_PACKAGE}; or put any English text into text.txt yourself")
    run(["apt-get", "download", "-q", NOVELS_PACKAGE], scratch, "downloading the novels")
    packages = list(scratch.glob(f"{NOVELS_PACKAGE}_*.deb"))
    if len(packages) != 1:
        fail(f"expected one package {NOVELS_PACKAGE}, got {len(packages)}")
    run(["dpkg-deb", "-x", packages[0].name, "package"], scratch, "unpacking the novels")
    database = scratch / "package/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
    data = database.read_bytes()
    books, position = [], 0
    while position < len(data):
        # Each record states its unpacked length; where it ends, the zlib stream says.
        (length,) = struct.unpack_from(">I", data, position)
        unpacker = zlib.decompressobj()
        record = unpacker.decompress(data[position + 4 :])
        if len(record) != length:
            fail(f"a record of {length} bytes unpacked to {len(record)}")
        position = len(data) - len(unpacker.unused_data)
        lines = character_vector(record)
        if lines:
            books.append("\n".join(lines))
    text = "\n\n".join(books).encode("ascii", "replace") + b"\n"
    if len(books) != 6 or len(text) < 4_000_000:
        fail(f"expected six novels of 4 MB, got {len(books)} of {len(text)} bytes")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has pip (default: this one)")
    arguments = parser.parse_args()
    missing = [name for name in FILES if not (arguments.folder / name).is_file()]
    if arguments.check:
        print("\n".join(missing))
        return 1 if missing else 0
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in missing:
        with tempfile.TemporaryDirectory() as scratch:
            content = {"digits.csv": digits, "text.txt": novels}[name](pathlib.Path(scratch), arguments.python)
        # Renamed into place, so that a file that is there is whole.
        partial = arguments.folder / f".{name}.{os.getpid()}"
        partial.write_bytes(content)
        partial.replace(arguments.folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
