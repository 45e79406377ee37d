#!/usr/bin/env python3
"""The unchanged CUDA wheel of torch on the stand-in. Runs under its launcher, with the interpreter that has torch.

Values mean nothing here, so the cases look at what was asked of the runtime, at memory, order and errors.
"""

import ctypes
import os
import subprocess
import sys
import unittest
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

MIB = 1 << 20
# How the allocator under test gets memory from the driver.
DRIVER_CALL = {"expandable_segments:True": "cuMemCreate", "backend:cudaMallocAsync": "cudaMallocAsync"}.get(
    os.environ.get("PYTORCH_ALLOC_CONF"), "cudaMalloc"
)
runtime = ctypes.CDLL(None)
runtime.berth_standin_calls.restype = ctypes.c_uint64
runtime.berth_standin_used.restype = ctypes.c_size_t
runtime.berth_standin_violations.restype = ctypes.c_size_t


def calls(name):
    return runtime.berth_standin_calls(name.encode())


def fail(name, first, error, count=1):
    runtime.berth_standin_fail(name.encode(), ctypes.c_uint64(first), error, ctypes.c_uint64(count))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 4 * width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def train(model, x, target, steps=2):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        optimizer.step()
    torch.cuda.synchronize()


class TorchOnTheStandin(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("error")  # libtorch warns where a library did not do what it wanted
        torch.cuda.init()

    def tearDown(self):
        runtime.berth_standin_clear_faults()
        torch.cuda.synchronize()
        self.assertEqual(runtime.berth_standin_violations(), 0)

    def test_the_device_is_the_one_of_the_table(self):
        properties = torch.cuda.get_device_properties(0)
        self.assertEqual(properties.name, "NVIDIA A100-SXM4-80GB")
        self.assertEqual((properties.major, properties.minor, properties.multi_processor_count), (8, 0, 108))
        self.assertEqual(properties.L2_cache_size, 40 * MIB)
        self.assertEqual(properties.regs_per_multiprocessor, 65536)
        self.assertEqual(properties.max_threads_per_multi_processor, 2048)
        self.assertEqual(properties.total_memory, 84_986_691_584)

    def test_copies_move_values(self):
        x = torch.arange(1000.0)
        self.assertTrue(torch.equal(x.cuda().clone().cpu(), x))
        y = x.pin_memory().to("cuda", non_blocking=True)
        self.assertTrue(torch.equal(y.cpu(), x))

    def test_memory_statistics_and_the_driver_agree(self):
        torch.cuda.empty_cache()
        before, reserved = runtime.berth_standin_used(0), torch.cuda.memory_reserved()
        x = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(runtime.berth_standin_used(0) - before, torch.cuda.memory_reserved() - reserved)
        del x
        torch.cuda.empty_cache()
        self.assertEqual(runtime.berth_standin_used(0), before)

    def test_streams_and_events(self):
        side, event = torch.cuda.Stream(), torch.cuda.Event()
        x = torch.zeros(1 << 20, device="cuda")
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.default_stream())
            y = x.clone()
            event.record()
        x.record_stream(side)
        event.synchronize()
        self.assertTrue(event.query())
        self.assertTrue(side.query())
        del x, y

    def test_resnet50_with_cudnn_and_with_its_benchmark(self):
        executions = {}
        for benchmark in (False, True):
            batch = 4 if benchmark else 8  # torch keeps the engine it chose for a shape
            x = torch.empty(batch, 3, 224, 224, device="cuda")
            target = torch.zeros(batch, dtype=torch.long, device="cuda")
            with torch.backends.cudnn.flags(enabled=True, benchmark=benchmark):
                before = calls("cudnnBackendExecute")
                train(resnet50().cuda(), x, target)
                executions[benchmark] = calls("cudnnBackendExecute") - before
        # 53 convolutions, each forward and twice backward (but the first one's input), in two steps.
        self.assertGreaterEqual(executions[False], 2 * (3 * 53 - 1))
        self.assertGreater(executions[True], executions[False])  # all engines were tried

    def test_recurrent_networks_train(self):
        kinds = (
            (nn.LSTM, {}),
            (nn.LSTM, {"bidirectional": True, "num_layers": 2, "dropout": 0.1}),
            (nn.LSTM, {"proj_size": 24}),
            (nn.GRU, {"num_layers": 2}),
            (nn.GRU, {"bias": False}),
            (nn.RNN, {"bidirectional": True}),
        )
        for kind, options in kinds:
            with self.subTest(kind=kind.__name__, **options):
                before = calls("cudnnRNNForward"), calls("cudnnRNNBackwardWeights_v8")
                torch.cuda.reset_peak_memory_stats()
                net = kind(40, 32, batch_first=True, **options).cuda()
                x = torch.randn(8, 20, 40, device="cuda", requires_grad=True)
                out, _ = net(x)
                width = options.get("proj_size", 32) * (2 if options.get("bidirectional") else 1)
                self.assertEqual(tuple(out.shape), (8, 20, width))
                out.sum().backward()
                self.assertEqual(x.grad.shape, x.shape)
                self.assertEqual([p.grad.shape for p in net.parameters()], [p.shape for p in net.parameters()])
                self.assertEqual(
                    (calls("cudnnRNNForward") - before[0], calls("cudnnRNNBackwardWeights_v8") - before[1]), (1, 1)
                )

    def test_training_keeps_what_a_recurrent_network_needs_backward(self):
        # The native allocator's "allocated" has rests that it does not split off; the other one counts no requests.
        counter = "allocated_bytes" if torch.cuda.get_allocator_backend() == "cudaMallocAsync" else "requested_bytes"

        def requested():
            return torch.cuda.memory_stats()[f"{counter}.all.current"]

        def held(steps):
            net = nn.LSTM(64, 64).cuda()
            x = torch.randn(steps, 16, 64, device="cuda")
            net(x)
            before = requested()
            out = net(x)[0]
            return requested() - before, out.nbytes

        short, output = held(50)
        long, _ = held(100)
        # Beside its output: gates, states, cells of each step.
        self.assertGreater(short, 4 * output)
        self.assertGreater(long, 1.8 * short)
        with torch.no_grad():  # which keeps none of that
            self.assertLess(held(100)[0], long / 2)

    def test_packed_sequences_and_their_lengths(self):
        packed = nn.utils.rnn.pack_padded_sequence(
            torch.randn(4, 12, 40, device="cuda"), torch.tensor([12, 9, 5, 1]), batch_first=True
        )
        out, (hidden, _) = nn.LSTM(40, 32).cuda()(packed)
        self.assertEqual((tuple(out.data.shape), tuple(hidden.shape)), ((27, 32), (1, 4, 32)))

    def test_ctc_loss_takes_cudnns(self):
        # Lengths on the host, and on the device: one function each.
        targets = torch.randint(1, 20, (40,), dtype=torch.int32)
        for name, arguments in (
            ("cudnnCTCLoss", (targets, (50,) * 4, (10,) * 4)),
            ("cudnnCTCLoss_v8", (targets.cuda(), *(torch.full((4,), n, dtype=torch.int32).cuda() for n in (50, 10)))),
        ):
            with self.subTest(name):
                before = calls(name)
                scores = torch.randn(50, 4, 20, device="cuda", requires_grad=True)
                F.ctc_loss(scores.log_softmax(2), *arguments).backward()
                self.assertEqual(scores.grad.shape, scores.shape)
                self.assertEqual(calls(name) - before, 1)

    def test_a_convolutions_engines_take_other_times_and_workspaces(self):
        layer = nn.Conv2d(64, 64, 3, padding=1, bias=False).cuda()
        results, peaks, times = [], [], []
        for benchmark in (False, True):
            # torch keeps the engine it chose for a shape, so these are two of a size.
            x = torch.randn(16, 64, *((56, 64) if benchmark else (64, 56)), device="cuda")
            with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, benchmark=benchmark):
                layer(x)  # finds the engine
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                result = layer(x)
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
                peaks.append(torch.cuda.max_memory_allocated())
                results.append(result[0, 0, 0, 0].item())
                del result
        # The fastest is a transform, which takes more workspace and adds up in another way.
        self.assertLess(times[1], times[0])
        self.assertGreater(peaks[1], peaks[0])
        self.assertNotEqual(results[0], results[1])

    def test_the_older_convolution_interface(self):
        program = """
import torch
torch.backends.cudnn.benchmark = {benchmark}
layers = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, groups=2)).cuda()
for _ in range(2):
    layers(torch.randn(4, 3, 32, 32, device="cuda")).sum().backward()
torch.cuda.synchronize()
import ctypes
calls = ctypes.CDLL(None).berth_standin_calls
print(torch.cuda.max_memory_allocated() > 0, [calls(name) for name in (b"cudnnConvolutionForward", b"cudnnBackendExecute")],
      calls(b"cudnnFindConvolutionForwardAlgorithmEx") > 0)
"""
        for benchmark in (False, True):
            with self.subTest(benchmark=benchmark):
                result = subprocess.run(
                    [sys.executable, "-c", program.format(benchmark=benchmark)],
                    capture_output=True,
                    text=True,
                    env={**os.environ, "TORCH_CUDNN_V8_API_DISABLED": "1"},
                )
                self.assertEqual((result.stdout, result.returncode), (f"True [4, 0] {benchmark}\n", 0), result.stderr)

    def test_linear_with_bias_takes_the_fused_product(self):
        before = calls("cublasLtMatmul")
        for kind in (torch.float32, torch.bfloat16):
            layer = nn.Linear(64, 32, device="cuda", dtype=kind)
            layer(torch.empty(8, 64, device="cuda", dtype=kind)).sum().backward()
        self.assertGreater(calls("cublasLtMatmul"), before)

    def test_attention_takes_each_kernel(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q = torch.empty(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for backend in (
            SDPBackend.FLASH_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION,
            SDPBackend.CUDNN_ATTENTION,
            SDPBackend.MATH,
        ):
            with self.subTest(backend), sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()

    def test_attention_by_cudnn_has_no_scores_in_memory(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q = torch.empty(2, 4, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        scores = 2 * 4 * 1024 * 1024 * 4
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        self.assertLess(torch.cuda.max_memory_allocated() - before, scores / 2)

    def test_graphs_are_captured_and_replayed(self):
        x = torch.zeros(256, 256, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = torch.mm(x, x) + 1
        kernels, launches = calls("cudaLaunchKernel"), calls("cudaGraphLaunch")
        for _ in range(3):
            graph.replay()
        self.assertEqual(calls("cudaGraphLaunch") - launches, 3)
        self.assertEqual(calls("cudaLaunchKernel"), kernels)
        del graph, y

    def test_sleep_keeps_its_stream_busy(self):
        stream, event = torch.cuda.Stream(), torch.cuda.Event()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            event.record()
        self.assertFalse(event.query())
        event.synchronize()
        self.assertTrue(stream.query())

    def test_the_profiler_runs_without_one_of_the_device(self):
        with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
            torch.empty(MIB, device="cuda")
        self.assertTrue(any(event.name == "aten::empty" for event in profile.events()))

    def test_running_out_of_memory_is_torchs_own_error(self):
        with self.assertRaisesRegex(torch.OutOfMemoryError, "out of memory"):
            torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()
        fail(DRIVER_CALL, 1, 2, 2)  # and again once the caches were given back
        with self.assertRaisesRegex(torch.OutOfMemoryError, "out of memory"):
            torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
        runtime.berth_standin_clear_faults()
        torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")

    def test_a_failing_call_is_named(self):
        fail("cudaStreamSynchronize", 1, 999)
        with self.assertRaisesRegex(RuntimeError, "CUDA error: unknown error"):
            torch.cuda.current_stream().synchronize()

    def test_nccl_of_one_rank(self):
        import torch.distributed as dist

        if not dist.is_nccl_available():
            self.skipTest("this torch has no NCCL")
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0"))
        x = torch.arange(100.0).cuda()
        y = torch.empty(100, device="cuda")
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, x)
        self.assertTrue(torch.equal(y.cpu(), torch.arange(100.0)))
        dist.barrier()
        torch.cuda.synchronize()
        dist.destroy_process_group()


if __name__ == "__main__":
    unittest.main(verbosity=2)
