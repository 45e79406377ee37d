"""berth's sources for libtorch compile against the headers of a newer torch: COMPILER TORCH_FOLDER CUDA_INCLUDE.

Syntax only, since a wheel's headers without its libraries are all that cmake/setup fetches. Exit code 77 without them.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIPPED = 77
# What the newest libtorch has must have been found, or its methods are silently left out.
FOUND = """
#define OVERRIDES(method) static_assert(!std::is_same_v< \
  decltype(&berth::torch::CudaInterface::method), decltype(&c10::cuda::CUDACachingAllocator::CUDAAllocator::method)>)
OVERRIDES(attachOomRejectionObserver);
OVERRIDES(getContextForPointer);
OVERRIDES(allocateWithAddress);
OVERRIDES(markCaptureBegin);
OVERRIDES(markCaptureEnd);
OVERRIDES(supportsUserMetadata);
OVERRIDES(annotateMemory);
static_assert(!std::is_abstract_v<berth::torch::CudaAllocator>);
static_assert(berth::torch::kMarksCaptures && berth::torch::annotate_action().has_value());
"""


def main():
    compiler, torch, cuda = sys.argv[1:]
    include = pathlib.Path(torch, "include")
    if not include.is_dir():
        print(f"no headers in {torch}: cmake/setup fetches them")
        return SKIPPED
    flags = [
        "-fsyntax-only",
        "-std=c++20",
        "-DNDEBUG",
        "-DFMT_HEADER_ONLY=1",
        "-DBERTH_CUDA=1",
        '-DBERTH_VERSION="0.1.0"',
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Werror=suggest-override",
        f"-I{ROOT}",
        f"-I{ROOT}/include",
        "-isystem",
        include,
        "-isystem",
        include / "torch/csrc/api/include",
        "-isystem",
        cuda,
    ]
    with tempfile.TemporaryDirectory() as folder:
        # The CUDA side as one file: each of its sources takes as long as all of them.
        together = pathlib.Path(folder, "cuda.cc")
        sources = sorted((ROOT / "csrc/torch/cuda").rglob("*.cc"))
        together.write_text("".join(f'#include "{path.relative_to(ROOT)}"\n' for path in sources) + FOUND)
        files = [together, *sorted((ROOT / "csrc/torch").glob("*.cc"))]

        def compile(file):
            done = subprocess.run([compiler, *flags, file], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            return file.name if done.returncode else None, done.stderr

        with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count() or 2, 8)) as pool:
            results = list(pool.map(compile, files))
    failed = [name for name, _ in results if name]
    print("".join(text for _, text in results))
    print(f"{len(files) - len(failed)} of {len(files)} compiled{''.join(' ' + name for name in failed)}")
    return 1 if failed or len(sources) < 5 else 0


if __name__ == "__main__":
    sys.exit(main())
