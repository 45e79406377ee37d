"""The check of the layers finds what it is for, on small trees that break one rule each."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from check_layers import violations, wide_lines  # noqa: E402


class CheckLayers(unittest.TestCase):
    def found(self, files):
        """The violations of a tree of `files` (path: text); READMEs are added to folders of csrc that lack them."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"csrc/core/bytes.h": "", **files}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                if name.startswith("csrc/") and "no README" not in text:
                    (path.parent / "README.md").write_text("what it is for")
            return list(violations(root))

    def assert_one(self, files, text):
        found = self.found(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(text, found[0])

    def test_a_folder_may_include_those_below_it_and_itself(self):
        self.assertEqual(
            self.found(
                {
                    "csrc/plan/plan.h": '#include "csrc/core/bytes.h"\n#include "csrc/trace/trace.h"\n',
                    "csrc/plan/plan.cc": '#include "csrc/plan/plan.h"\n#include <berth/bytes.h>\n#include <vector>\n',
                    "csrc/plan/CMakeLists.txt": "berth_layer(plan SOURCES plan.cc LINK berth::core berth::trace)\n",
                    "include/berth/plan.h": "#include <berth/bytes.h>\n",
                }
            ),
            [],
        )

    def test_including_a_folder_above_is_found(self):
        self.assert_one(
            {"csrc/core/x.cc": '\n  #  include "csrc/plan/plan.h"\n'},
            "csrc/core/x.cc:2: includes csrc/plan/plan.h: plan does not lie below core",
        )

    def test_including_a_floor_above_is_found(self):
        below = {
            "csrc/place/README.md": "",
            "csrc/place/exact/x.cc": '#include "csrc/place/dives/dive.h"\n',
            "csrc/place/place.cc": '#include "csrc/place/stages/search.h"\n',
            "csrc/place/oracle/ilp.cc": '#include "csrc/place/ilp_engine.h"\n',
        }
        self.assertEqual(self.found(below), [])
        self.assert_one(
            {**below, "csrc/place/dives/x.cc": '#include "csrc/place/exact/x.h"\n'},
            "csrc/place/dives/x.cc:1: includes csrc/place/exact/x.h: exact does not lie below dives",
        )
        self.assert_one(
            {**below, "csrc/place/stages/x.cc": '#include "csrc/place/portfolio.h"\n'},
            "place does not lie below stages",
        )
        self.assert_one(
            {**below, "csrc/place/x.cc": '#include "csrc/place/oracle/ilp.h"\n'}, "oracle does not lie below place"
        )
        self.assert_one(
            {**below, "csrc/place/attic/x.cc": '#include "csrc/place/place.h"\n'},
            "csrc/place/attic is not in the order of the floors",
        )

    def test_linking_a_folder_above_is_found(self):
        self.assert_one(
            {"csrc/device/CMakeLists.txt": "berth_layer(device\n  LINK berth::pool)\n"},
            "csrc/device/CMakeLists.txt:2: links pool",
        )

    def test_the_lower_layers_and_the_program_may_not_include_libtorch(self):
        for folder in ("runtime", "cuda", "replay", "cli", "core"):
            self.assert_one({f"csrc/{folder}/x.cc": "#include <c10/core/Allocator.h>\n"}, "builds without libtorch")
        self.assert_one({"csrc/cli/x.cc": '#include "csrc/torch/adapter.h"\n'}, "the program links no libtorch")

    def test_a_program_that_the_program_starts_may_include_libtorch(self):
        self.assertEqual(
            self.found({"csrc/replay/README.md": "", "csrc/replay/children/x.cc": "#include <c10/core/Allocator.h>\n"}),
            [],
        )

    def test_the_cpu_part_of_the_adapter_may_not_include_cuda(self):
        self.assert_one({"csrc/torch/x.cc": '#include "csrc/cuda/x.h"\n'}, "only csrc/torch/cuda may")
        self.assert_one({"csrc/torch/x.cc": '#include "csrc/torch/cuda/x.h"\n'}, "only csrc/torch/cuda may")
        self.assertEqual(
            self.found({"csrc/torch/README.md": "", "csrc/torch/cuda/y/x.cc": '#include "csrc/torch/cuda/y/x.h"\n'}), []
        )
        self.assertEqual(
            self.found(
                {
                    "csrc/torch/README.md": "",
                    "csrc/torch/cuda/x.cc": '#include "csrc/cuda/x.h"\n#include "csrc/torch/cuda/x.h"\n',
                }
            ),
            [],
        )

    def test_the_lower_layers_may_not_include_cuda(self):
        self.assert_one({"csrc/runtime/x.cc": "#include <cuda_runtime_api.h>\n"}, "builds without CUDA")
        self.assertEqual(self.found({"csrc/cuda/x.cc": "#include <cuda_runtime_api.h>\n#include <cuda.h>\n"}), [])

    def test_a_public_header_may_not_include_csrc(self):
        self.assert_one({"include/berth/plan.h": '#include "csrc/plan/plan.h"\n'}, "public headers use only")

    def test_a_folder_without_a_readme_is_found(self):
        self.assert_one({"csrc/pool/pool.h": "// no README\n"}, "csrc/pool: has no README.md")

    def test_a_folder_that_the_order_lacks_is_found(self):
        self.assert_one({"csrc/misc/x.h": ""}, "csrc/misc: is not in the order")

    def test_nothing_includes_the_stand_in(self):
        self.assertTrue(self.found({"csrc/torch/x.cc": '#include "csrc/standin/x.h"\n'}))

    def test_a_test_may_include_no_bench_but_the_one_that_it_tests(self):
        self.assert_one(
            {"tests/pool/x_test.cc": '#include "bench/x.h"\n'}, "benches use tests/support, tests use no bench"
        )
        self.assertEqual(self.found({"tests/bench/x_test.cc": '#include "bench/x.h"\n'}), [])

    def test_an_include_relative_to_its_own_folder_is_found(self):
        self.assert_one({"csrc/core/x.cc": '#include "bytes.h"\n'}, "from the root, as csrc/core/bytes.h")

    def test_a_python_module_may_import_those_below_it(self):
        self.assertEqual(self.found({"python_shim/berth/_install.py": "from berth import _library\n"}), [])
        self.assert_one(
            {"python_shim/berth/_library.py": "\n    from berth._install import install\n"},
            "python_shim/berth/_library.py:2: imports _install: it does not lie below _library",
        )
        self.assert_one({"python_shim/berth/_errors.py": "from berth import _stats\n"}, "imports _stats")
        self.assert_one({"python_shim/berth/_attic.py": ""}, "is not in the order of the modules")

    def test_the_python_module_may_not_include_libtorch(self):
        self.assert_one(
            {"python_shim/module/x.cc": '#include "csrc/torch/adapter.h"\n'}, "the module builds without libtorch"
        )

    def test_a_line_of_a_readme_that_is_too_wide_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "build").mkdir()
            (root / "build" / "README.md").write_text("x" * 101)
            (root / "README.md").write_text("x" * 100 + "\n" + "\u00fc" * 100)
            self.assertEqual(list(wide_lines(root)), [])
            (root / "README.md").write_text("\n" + "x" * 101)
            self.assertEqual(list(wide_lines(root)), ["README.md:2: is 101 columns wide, the most is 100"])


if __name__ == "__main__":
    unittest.main()
