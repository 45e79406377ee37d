"""bench/published: peaks of GPU memory that others published beside those of `berth dry-run` on programs that re-make theirs (no GPU).

"live" is torch.cuda.max_memory_allocated() or a memory snapshot's own sum, beside the live peak of the dry run. "reserved" is
torch.cuda.max_memory_reserved(), or what the driver said less the context, beside the native caching allocator's by its model. The programs lie in
tools/published_children; the versions of torch and of the models are today's. What is known of a difference stands in its row.

ViT-L/16 needs torchvision (bench/published --setup).
"""

import argparse
import datetime
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import packages  # noqa: E402
import training  # noqa: E402
from training import ROOT, Failure, note  # noqa: E402

CHILDREN = pathlib.Path(__file__).resolve().parent / "published_children"
MIB, GIB, GB = 1 << 20, 1 << 30, 10**9

CS336 = "github.com/kkaitlyn111/cs336-a2-systems, memory snapshots"
VIT = "github.com/rasbt/pytorch-memory-optim, logs.md"
LORA = "github.com/Lightning-AI/litgpt, docs/resource-tables.md"
BERT = "transformers' documentation v4.21, less a context of 1,343 MiB"
TITAN = "github.com/pytorch/torchtitan, docs/performance.md"

SNAPSHOT = "another version of torch"
UNNAMED = "the source names no GPU, and workspaces of cuBLAS depend on it; another version of torch"
ADAM = "Adam as torch 2.0 computes it, with one more copy of the parameters"
LATE = "the driver's word: kernels loaded after the context was measured are in it"
OLD = "as torch 1.10 had it: softmax saves its input, zero_grad() keeps gradients"


def cs336(name, gpu, live, reserved, *arguments):
    note_of = SNAPSHOT if gpu == "H100-80" else UNNAMED
    return [
        (f"{name}", CS336, gpu, 1, "transformer.py", arguments, "live", live * MIB, note_of),
        (f"{name}", CS336, gpu, 1, "transformer.py", arguments, "reserved", reserved * MIB, note_of),
    ]


def vit(name, gigabytes, note_of, *arguments):
    return [(f"ViT-L/16, {name}", VIT, "A100-40", 1, "vit.py", arguments, "reserved", gigabytes * GB, note_of)]


def lora(name, gigabytes, model, micro_batch):
    return [
        (
            f"LoRA {name}, micro-batch {micro_batch}",
            LORA,
            "A100-40",
            1,
            "lora.py",
            ("--model", model, "--micro-batch", micro_batch),
            "live",
            gigabytes * GB,
            "Fabric makes logits float32",
        )
    ]


def bert(name, mebibytes, note_of, *arguments):
    return [(f"BERT-large, {name}", BERT, "V100-16", 1, "bert.py", arguments, "reserved", mebibytes * MIB, note_of)]


# Name, source, GPU, ranks, script, its arguments, what was published, bytes, what is known of the difference.
ROWS = [
    *cs336("2.7B, full step, context 128", "H100-80", 52264, 58280, "--context", 128),
    *cs336("2.7B, full step, context 512", "H100-80", 52326, 59920, "--context", 512),
    *cs336("2.7B, forward, context 128", "H100-80", 18456, 18756, "--context", 128, "--mode", "forward"),
    *cs336(
        "2.7B, forward, context 512, mixed", "H100-80", 38014, 38638, "--context", 512, "--mode", "forward", "--mixed"
    ),
    *cs336("small, inference", "A100-40", 531, 582, "--size", "small", "--mode", "inference"),
    *cs336("small, inference, mixed", "A100-40", 744, 822, "--size", "small", "--mode", "inference", "--mixed"),
    *vit("fp32, batch 64", 26.79, "", "--optimizer", "adam-2.0"),
    *vit("16-mixed, batch 64", 18.21, "", "--precision", "16-mixed", "--optimizer", "adam-2.0"),
    *vit("bf16, batch 64", 13.82, ADAM, "--precision", "bf16", "--optimizer", "adam-2.0"),
    *vit("bf16, batch 16", 5.69, ADAM, "--precision", "bf16", "--batch-size", 16, "--optimizer", "adam-2.0"),
    *vit(
        "bf16, 4 x 4, Adam",
        3.91,
        ADAM,
        "--precision",
        "bf16",
        "--batch-size",
        4,
        "--accumulate",
        4,
        "--optimizer",
        "adam-2.0",
    ),
    *vit(
        "bf16, 4 x 4, SGD", 2.02, "", "--precision", "bf16", "--batch-size", 4, "--accumulate", 4, "--optimizer", "sgd"
    ),
    *lora("Llama-2-7B", 21.30, "llama-2-7b", 1),
    *lora("Llama-2-7B", 29.07, "llama-2-7b", 2),
    *lora("phi-1.5", 4.82, "phi-1.5", 1),
    *lora("phi-1.5", 6.76, "phi-1.5", 2),
    *lora("phi-1.5", 10.68, "phi-1.5", 4),
    *bert("batch 1 x 4", 7338, OLD + "; " + LATE, "--batch-size", 1, "--accumulate", 4),
    *bert("batch 1 x 4, checkpoints", 5432, OLD, "--batch-size", 1, "--accumulate", 4, "--checkpoint"),
    *bert(
        "batch 1 x 4, checkpoints, fp16",
        5932,
        OLD + "; " + LATE,
        "--batch-size",
        1,
        "--accumulate",
        4,
        "--checkpoint",
        "--fp16",
    ),
    *bert(
        "batch 1 x 4, checkpoints, fp16, Adafactor",
        3504,
        OLD,
        "--batch-size",
        1,
        "--accumulate",
        4,
        "--checkpoint",
        "--fp16",
        "--adafactor",
    ),
    *bert("batch 4", 13606, OLD),
    *bert("batch 4, fp16", 12596, OLD + "; " + LATE, "--fp16"),
    *bert("batch 4, Adafactor", 10952, OLD, "--adafactor"),
    (
        "Llama 3.1 8B, FSDP2, 8 ranks",
        TITAN,
        "H100-80",
        8,
        "sharded_llama.py",
        (),
        "reserved",
        82.4 * GIB,
        "torch of 2024; collectives end at once on the stand-in, so blocks that other streams use come back sooner",
    ),
]
SMOKE = [
    ("transformer", CS336, "H100-80", 1, "transformer.py", ("--size", "tiny"), "live", 0, ""),
    ("BERT", BERT, "V100-16", 1, "bert.py", ("--small", "--batch-size", 2, "--steps", 2), "reserved", 0, ""),
    ("LoRA", LORA, "A100-40", 1, "lora.py", ("--model", "tiny"), "live", 0, ""),
    ("Llama, FSDP2, 2 ranks", TITAN, "H100-80", 2, "sharded_llama.py", ("--small", "--steps", 2), "reserved", 0, ""),
]


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.berth = training.program(arguments.build_dir, "berth")
        self.reports = {}

    def report(self, gpu, ranks, script, options):
        """What `dry-run` says of one program, which is run once however many rows it has."""
        key = (gpu, ranks, script, options)
        if key in self.reports:
            return self.reports[key]
        python = [self.arguments.python, "-B"]
        launcher = (
            [*python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks] if ranks > 1 else python
        )
        with tempfile.TemporaryDirectory() as folder:
            text = training.run(
                [
                    self.berth,
                    "dry-run",
                    "--json",
                    "--gpu",
                    gpu,
                    "--gpus",
                    ranks,
                    "-o",
                    pathlib.Path(folder) / "x.trace",
                    "--",
                    *launcher,
                    CHILDREN / script,
                    *options,
                ],
                {"PYTHONPATH": packages.path(), "HF_HUB_OFFLINE": "1"},
            )
        self.reports[key] = json.loads(text)
        return self.reports[key]

    def measure(self, row):
        name, source, gpu, ranks, script, options, what, published, known = row
        report = self.report(gpu, ranks, script, options)
        found = [
            rank["live_peak_bytes"] if what == "live" else rank["allocators"]["caching"]["reserved_peak_bytes"]
            for rank in report["ranks"]
        ]
        caching = [rank["allocators"]["caching"]["least_bytes"] for rank in report["ranks"]]
        answer = {
            "name": name,
            "source": source,
            "gpu": gpu,
            "what": what,
            "published_bytes": round(published),
            "dry_run_bytes": max(found),
            "least_bytes": max(caching),
            "held_in_run_bytes": [rank["held_in_run_bytes"] for rank in report["ranks"]],
            "difference": max(found) / published - 1 if published else None,
            "known": known,
            "seconds": report["seconds"],
        }
        note(
            f"published: {name}, {what}: {answer['dry_run_bytes'] / MIB:,.0f} MiB"
            + (f", {answer['difference']:+.1%}" if published else "")
            + f", {report['seconds']:.0f} s"
        )
        return answer


def markdown(answers):
    mib = lambda value: f"{value / MIB:,.0f}" if value else "-"  # noqa: E731
    lines = [
        "| configuration | GPU | what | published, MiB | dry run, MiB | difference | smallest limit, MiB | what is known of it |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in answers:
        difference = "-" if one["difference"] is None else f"{one['difference']:+.1%}".replace("%", " %")
        lines.append(
            f"| {one['name']} | {one['gpu']} | {one['what']} | {mib(one['published_bytes'])} | {mib(one['dry_run_bytes'])} | {difference} | "
            f"{mib(one['least_bytes'])} | {one['known']} |"
        )
    lines.append("")
    lines += [f"- {source}" for source in dict.fromkeys(one["source"] for one in answers)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        prog="bench/published", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", action="append", metavar="TEXT", help="rows whose names hold it; may be repeated")
    add("--build-dir", type=pathlib.Path, default=ROOT / "build/release", help="of berth")
    add(
        "--python",
        type=pathlib.Path,
        default=ROOT / ".venv/bin/python3",
        help="with torch for CUDA and transformers (cmake/setup)",
    )
    add("--smoke", action="store_true", help="small programs of each kind, beside nothing, to see that they run")
    add("--output", type=pathlib.Path, help="a .md that is written; a .json goes beside it")
    packages.add_options(add)
    arguments = parser.parse_args()
    if arguments.setup:
        packages.setup(arguments.python)
        return 0
    rows = [
        row
        for row in (SMOKE if arguments.smoke else ROWS)
        if not arguments.only or any(text in row[0] for text in arguments.only)
    ]
    if not rows:
        parser.error(f"no row's name holds {' or '.join(arguments.only)}")
    answers = []
    try:
        bench = Bench(arguments)
        for row in rows:
            if row[4] == "vit.py" and not (packages.FOLDER / "torchvision").is_dir():
                note(f"published: {row[0]}: left out, for want of torchvision (bench/published --setup)")
                continue
            answers.append(bench.measure(row))
    except Failure as failure:
        print(f"published: {failure}", file=sys.stderr)
        return 1
    text = markdown(answers)
    print(text, end="")
    if arguments.output:
        host = training.machine()
        head = (
            f"# Published peaks of real GPUs beside the dry run\n\nCommit {training.commit()}, {datetime.date.today()}, {host['cpu']}, "
            f"{host['cores']} cores, no GPU; `bench/published`.\n\n"
        )
        arguments.output.write_text(head + text)
        arguments.output.with_suffix(".json").write_text(json.dumps(answers, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
