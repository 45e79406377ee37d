"""Which of PyTorch's own tests are run: its file in the checkout, the class, and the names within it."""

import dataclasses
import fnmatch


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    file: str  # in the checkout; or, for a program, the name of the test program
    classes: tuple  # patterns
    tests: tuple = ("*",)  # patterns of method names
    devices: int = 1  # of the stand-in
    alone: bool = False  # a process a test, for tests that leave hooks behind
    program: bool = False  # a gtest program instead of a Python file
    pace: str = "eager"  # of the stand-in's scheduler

    def wants(self, class_name, method):
        return any(fnmatch.fnmatchcase(class_name, pattern) for pattern in self.classes) and any(
            fnmatch.fnmatchcase(method, pattern) for pattern in self.tests
        )


# What in TestCuda reaches the allocator: memory, its limits and errors, streams, events, captures, pinned memory, and
# the storages that have paths of their own. The rest of that class tests kernels and libraries.
ALLOCATOR = (
    "*memory*",
    "*oom*",
    "*allocator*",
    "*Allocator*",
    "*alloc*",
    "*snapshot*",
    "*stream*",
    "*event*",
    "*graph*",
    "*pinned*",
    "*pin_*",
    "*fraction*",
    "*empty_cache*",
    "*mem_get_info*",
    "*caching*",
    "*storage*",
    "*set_*settings*",
    "*check_error*",
    "*copy_non_blocking*",
    "*to_non_blocking*",
    "*fuzz*",
    "*synchronize*",
    "*device_count*",
    "*cublas_workspace*",
    "*uuid*",
    "*host_*",
    "*pool*",
    "*checkpoint*",
)

PARTS = (
    Part("trace", "test/test_cuda_trace.py", ("TestCudaTrace",), alone=True),
    Part("pools", "test/test_cuda.py", ("TestMemPool",)),
    Part("snapshots", "test/test_cuda.py", ("TestCudaAllocator", "TestCudaMallocAsync")),
    Part("absorption", "test/test_cuda.py", ("TestBlockStateAbsorption",)),
    Part("host", "test/test_cuda.py", ("TestCachingHostAllocatorCudaGraph",)),
    Part("cuda", "test/test_cuda.py", ("TestCuda",), ALLOCATOR),
    Part("graphs", "test/dynamo/test_cudagraphs.py", ("*",)),
    Part("graph_trees", "test/inductor/test_cudagraph_trees.py", ("*",)),
    Part("devices", "test/test_cuda_multigpu.py", ("TestCudaMultiGPU",), ALLOCATOR, devices=2),
    Part("processes", "test/test_multiprocessing.py", ("TestMultiprocessing",), ("*cuda*", "*event*"), devices=2),
    Part("c++ allocator", "cuda_allocator_test", ("*",), program=True),
    Part("c++ trackers", "cuda_allocatorTraceTracker_test", ("*",), program=True),
    Part("c++ profiler", "cuda_reportMemoryUsage_test", ("*",), program=True),
    Part("c++ host", "cuda_caching_host_allocator_test", ("*",), program=True),
    Part("c++ streams", "cuda_stream_test", ("*",), devices=2, program=True),
    Part("c++ ipc", "cuda_caching_allocator_ipc_test", ("*",), program=True),
)
