#!/usr/bin/env python3
"""Fetches the headers of a torch wheel, and nothing else of it: torch_headers.py VERSION FOLDER.

They come to FOLDER/include. pip says where the wheel is, by its own settings; ranges of it are read over HTTP, so that 20 MB are
fetched, not 500. Run by a Python with pip, as cmake/setup does with that of .venv.
"""

import io
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile

KEPT = "torch/include/"
SUFFIXES = (".h", ".hpp", ".cuh", ".inl")


def pip(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise SystemExit(f"pip {arguments[0]} failed: {lines[-1]}")
    return done.stdout


def wheel_address(version):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        # Only looks: the index gives the metadata by itself.
        pip(
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--report",
            str(report),
            f"torch=={version}",
        )
        return json.loads(report.read_text())["install"][0]["download_info"]["url"]


def certificates():
    for line in pip("config", "list").splitlines():
        key, _, value = line.partition("=")
        if key.endswith(".cert"):
            return value.strip("'\"")
    return os.environ.get("REQUESTS_CA_BUNDLE")


class RangedFile(io.RawIOBase):
    """A file behind an address, of which what is read is fetched, in pieces of at least `PIECE` bytes."""

    PIECE = 8 << 20

    def __init__(self, address):
        self.address = address
        self.context = ssl.create_default_context(cafile=certificates())
        self.position, self.piece_start, self.piece = 0, 0, b""
        self.size = self.fetch(0, 1)[1]

    def fetch(self, first, count):
        request = urllib.request.Request(self.address, headers={"Range": f"bytes={first}-{first + count - 1}"})
        with urllib.request.urlopen(request, context=self.context, timeout=180) as answer:
            if answer.status != 206:
                raise SystemExit(
                    "the server of the wheel answers no range requests, and the whole wheel is not fetched for its headers"
                )
            return answer.read(), int(answer.headers["Content-Range"].rpartition("/")[2])

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.position

    def seek(self, offset, whence=io.SEEK_SET):
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        return self.position

    def readinto(self, buffer):
        if self.position >= self.size:
            return 0
        offset = self.position - self.piece_start
        if not 0 <= offset < len(self.piece):
            # The directory is at the end, and read first.
            self.piece_start = min(self.position, max(self.size - self.PIECE, 0))
            self.piece, _ = self.fetch(self.piece_start, min(self.PIECE, self.size - self.piece_start))
            offset = self.position - self.piece_start
        part = self.piece[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        self.position += len(part)
        return len(part)


def open_wheel(address):
    if urllib.parse.urlsplit(address).scheme == "file":
        return open(urllib.request.url2pathname(urllib.parse.urlsplit(address).path), "rb")
    return io.BufferedReader(RangedFile(address), 1 << 20)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with open_wheel(wheel_address(version)) as file, zipfile.ZipFile(file) as wheel:
            headers = [
                entry
                for entry in wheel.infolist()
                if entry.filename.startswith(KEPT) and entry.filename.endswith(SUFFIXES)
            ]
            # In the file's order, so that each byte is fetched once.
            for entry in sorted(headers, key=lambda entry: entry.header_offset):
                target = part / "include" / entry.filename.removeprefix(KEPT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(wheel.read(entry))
    except (OSError, zipfile.BadZipFile, urllib.error.URLError) as error:
        raise SystemExit(f"cannot read the wheel of torch {version}: {error}") from error
    if not headers:
        raise SystemExit(f"the wheel of torch {version} holds no headers")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


if __name__ == "__main__":
    main()
