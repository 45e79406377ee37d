"""What a wheel holds, and that it works elsewhere. wheel_test.py CMAKE BUILD [SOURCE]

Without SOURCE the wheel's files are taken from the build folder BUILD, as scikit-build-core takes them. With SOURCE, the root of the
checkout, pip builds the wheel from nothing (five minutes), and it is installed in an environment of its own that sees the same torch.
"""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from support import STANDIN

CMAKE, BUILD, *REST = sys.argv[1:]
SOURCE = pathlib.Path(REST[0]) if REST else None
PROGRAM = """
import sys
import berth, torch
assert berth.__file__.startswith(sys.argv[1]), berth.__file__
berth.install("all")
step = [torch.ones(10, device=device) for device in ("cpu", "cuda") for _ in range(3)]
print(berth.stats("cpu").requests > 2, berth.stats("cuda").requests > 2, berth.place([5], [0], [1]).high_water_mark)
"""


def call(*command, **options):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | options.pop("extra", {})
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, **options)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    return result.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name).resolve()
        cls.package = cls.folder / "site" / "berth"
        if SOURCE is None:
            call(CMAKE, "--install", BUILD, "--component", "python", "--prefix", cls.package)
            built = pathlib.Path(BUILD) / "python" / "berth"
            for path in built.rglob("*"):
                if path.suffix == ".py" or path.name == "py.typed":
                    (cls.package / path.relative_to(built)).parent.mkdir(exist_ok=True)
                    shutil.copy(path, cls.package / path.relative_to(built))
        else:
            call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", cls.folder, SOURCE / "python_shim")
            (cls.wheel,) = cls.folder.glob("*.whl")
            zipfile.ZipFile(cls.wheel).extractall(cls.folder / "site")

    def binaries(self):
        found = [*self.package.glob("*.so"), *(self.package / "bin").iterdir()]
        self.assertGreaterEqual(len(found), 4)
        return found

    def test_all_of_the_package_is_there(self):
        names = {path.relative_to(self.package).as_posix() for path in self.package.rglob("*") if path.is_file()}
        built = {
            path.relative_to(BUILD + "/python/berth").as_posix()
            for path in pathlib.Path(BUILD, "python/berth").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        self.assertEqual(names, built)

    def test_no_path_of_the_build_is_in_it(self):
        for path in self.binaries():
            self.assertNotRegex(call("readelf", "-d", path), r"(RPATH|RUNPATH).*\[(?!\$ORIGIN/)", path.name)
            if SOURCE is not None:
                self.assertNotIn(str(SOURCE.resolve()).encode(), path.read_bytes(), path.name)

    def test_it_asks_for_nothing_but_torch_and_the_systems_libraries(self):
        system = r"lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s|z)\.so\.\d+|ld-linux-.*|lib(c10|c10_cuda|torch|torch_cpu|torch_cuda)\.so"
        if SOURCE is None:
            system += r"|libfmt\.so.*"  # which a build for this machine may use
        for path in self.binaries():
            for needed in re.findall(r"NEEDED.*\[(.*)\]", call("readelf", "-d", path)):
                self.assertRegex(needed, f"^({system})$", path.name)

    def test_without_cudas_part_it_says_so(self):
        site = self.folder / "without"
        shutil.copytree(self.package, site / "berth")
        for path in (site / "berth").glob("libberth_torch_cuda*"):
            path.unlink()
        text = (
            "import berth\nprint(berth.install(None), berth.installed('cpu'))\ntry:\n    berth.install('cuda')\n"
            "except berth.UsageError as error:\n    print(error)\n"
        )
        out = call(STANDIN, "--", sys.executable, "-B", "-c", text, extra={"PYTHONPATH": str(site)}, cwd=self.folder)
        self.assertIn("True True\nthis berth has no part for cuda: it was built for torch", out)

    def test_it_works_elsewhere(self):
        program = self.folder / "program.py"
        program.write_text(PROGRAM)
        if SOURCE is None:
            python, extra, place = sys.executable, {"PYTHONPATH": str(self.folder / "site")}, self.folder
        else:
            place, extra = self.folder / "venv", {}
            call(sys.executable, "-m", "venv", place)
            python = place / "bin" / "python"
            torch = importlib.util.find_spec("torch").submodule_search_locations[
                0
            ]  # which is not imported outside the stand-in
            (site,) = place.glob("lib/python3*/site-packages")
            (site / "torch.pth").write_text(str(pathlib.Path(torch).parent) + "\n")
            call(python, "-m", "pip", "install", "-q", "--no-deps", self.wheel)
            self.assertIn("berth 0", call(place / "bin" / "berth", "--version"))
        out = call(STANDIN, "--", python, "-B", program, place, extra=extra, cwd=self.folder)
        self.assertEqual(out, "True True 5\n")
        out = call(
            STANDIN,
            "--",
            python,
            "-B",
            "-m",
            "berth",
            "record",
            "-o",
            "x.trace",
            "--device",
            "cpu",
            "--",
            python,
            "-c",
            "import torch; torch.ones(5)",
            extra=extra,
            cwd=self.folder,
        )
        self.assertTrue((self.folder / "x.trace").exists())
        out = call(STANDIN, "--", python, "-B", "-m", "berth", "doctor", "--device", extra=extra, cwd=self.folder)
        self.assertIn("berth uses: virtual, in pages of 2.0 MiB", out)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
