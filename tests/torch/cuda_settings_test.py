"""Settings of PyTorch's allocators, plots of its history, and what opens a GPU: cases that its own tests have since 2.7, told anew.

Run under PyTorch's own allocator and under berth: TEST_ALLOCATOR says which.
"""

import contextlib
import json
import os
import subprocess
import sys
import unittest

import torch
from cuda_support import ALLOCATOR, MIB, CudaCase, stat
from torch.cuda import _memory_viz

configure = torch._C._accelerator_setAllocatorSettings


def asked_for(size):
    """What one block of `size` bytes adds to the bytes of all blocks, and to those that were asked for."""
    torch.cuda.empty_cache()
    before = stat("active_bytes.all.allocated"), stat("requested_bytes.all.allocated")
    block = torch.empty(size, dtype=torch.uint8, device="cuda")
    del block
    return stat("active_bytes.all.allocated") - before[0], stat("requested_bytes.all.allocated") - before[1]


class Settings(CudaCase):
    def tearDown(self):
        configure("roundup_power2_divisions:1")
        super().tearDown()

    def test_sizes_are_rounded_as_was_said_last(self):
        size, large = 84 * MIB, 400 * MIB
        for text, wanted in (
            ("", {size: size}),
            ("roundup_power2_divisions:4", {size: 96 * MIB, 80 * MIB: 80 * MIB}),
            ("garbage_collection_threshold:0.5", {size: size}),
            ("garbage_collection_threshold:0.5,max_split_size_mb:40", {size: size}),
            (
                "garbage_collection_threshold:0.5,roundup_power2_divisions:[64:8,128:2,256:2,512:2,1024:1,>:1]",
                {size: 88 * MIB, large: 512 * MIB},
            ),
            ("release_lock_on_cudamalloc:True", {size: size}),
        ):
            configure(text or "roundup_power2_divisions:1")
            if not text.count("roundup"):
                configure("roundup_power2_divisions:1")
            for asked, taken in wanted.items():
                with self.subTest(text, asked=asked):
                    self.assertEqual(asked_for(asked), (taken, asked))

    def test_what_is_wrong_is_refused(self):
        for text in (
            "foo:1,bar:2",
            "garbage_collection_threshold:1.2",
            "max_split_size_mb:2",
            "release_lock_on_cudamalloc:none",
            "pinned_use_cuda_host_register:none",
            "pinned_num_register_threads:none",
            "pinned_num_register_threads:1024",
        ):
            with self.subTest(text), self.assertRaises((RuntimeError, ValueError)):
                configure(text)


class Plots(CudaCase):
    def test_they_show_frames_as_far_as_these_were_asked_for(self):
        for context, stacks in (("all", "all"), ("all", "python"), (None, "python")):
            with self.subTest(context=context, stacks=stacks), contextlib.ExitStack() as stack:
                torch.cuda.memory._record_memory_history("all", context=context, stacks=stacks)
                stack.callback(torch.cuda.memory._record_memory_history, None)
                x = torch.rand(200, 128, device="cuda")
                del x
                snapshot = torch.cuda.memory._snapshot()
                text = json.dumps(snapshot)  # before the plots, which filter what they are given
                for picture in (
                    _memory_viz.trace_plot(snapshot),
                    _memory_viz.trace_plot(snapshot, filter_freed=True),
                    _memory_viz.segment_plot(snapshot),
                ):
                    self.assertIn("<script", picture)
                self.assertEqual(os.path.basename(__file__) in text, context is not None)
                self.assertEqual("::rand" in text, stacks == "all")
                self.assertIn(str(200 * 128 * 4), text)


class Opening(CudaCase):
    def child(self, text, **variables):
        return subprocess.run(
            [sys.executable, "-B", "-c", text], capture_output=True, text=True, env={**os.environ, **variables}
        )

    def test_asking_whether_memory_is_pinned_opens_no_gpu(self):
        result = self.child(
            "import torch\nprint(torch.ones(10).is_pinned(), torch._C._cuda_hasPrimaryContext(0), torch.cuda.is_initialized())"
        )
        self.assertEqual(result.stdout, "False False False\n", result.stderr)

    def test_another_backend_is_there_or_is_refused(self):
        result = self.child(
            "import torch\ntorch.cuda.init()\nprint(torch.cuda.get_allocator_backend())",
            PYTORCH_ALLOC_CONF="max_split_size_mb:20,backend:cudaMallocAsync",
        )
        if ALLOCATOR == "berth":
            self.assertEqual(result.returncode, 2)
            self.assertIn("asks for backend:cudaMallocAsync, and berth is to be the allocator", result.stderr)
        else:
            self.assertEqual(result.stdout, "cudaMallocAsync\n", result.stderr)


if __name__ == "__main__":
    unittest.main()
