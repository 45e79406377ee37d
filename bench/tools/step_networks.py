"""bench/step_networks: the memory of training steps as written and by step programs that make nothing again, for the networks that OLLA was
measured on.

Steps run on CUDA's stand-in, whose kernels do nothing: memory is that of a GPU, times and values mean nothing. Bytes are what is asked of
PyTorch's allocator, without its rounding. The bound is that of the step's graph: no order of its operators takes less. Most want torchvision:
bench/step_networks --setup.
"""

import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import packages  # noqa: E402
import peers  # noqa: E402
import training  # noqa: E402
from python_programs import launcher  # noqa: E402
from schedule_recorded import OLLAS, ORDERS  # noqa: E402
from training import Failure, note  # noqa: E402

HERE = pathlib.Path(__file__).parent
HEADER = [
    "network",
    "batch",
    "operators",
    "resident",
    "as written",
    "ours",
    "bound",
    "predicted - measured, bytes",
    "saving, %",
]


def measure(network, batch, arguments):
    """What the child says of the network, with the bound of its step."""
    note(f"step_networks: {network}, batch {batch}")
    # Whatever the step takes: what a GPU has is another question.
    command, environment = launcher(arguments, "--copy-limit", 1 << 20, "--memory", 1 << 38)
    environment["PYTHONPATH"] = packages.path(environment["PYTHONPATH"])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        training.run(
            [
                *command,
                HERE / "step_children/network.py",
                network,
                batch,
                folder,
                *(["--small"] if arguments.smoke else []),
            ],
            {**environment, "HF_HUB_OFFLINE": "1"},
        )
        found = json.loads((folder / "run.json").read_text())
        run = peers.Run(
            [
                training.program(arguments.build_dir, "berth"),
                "schedule",
                folder / "step.graph",
                "--order-only",
                "--no-addresses",
                "--json",
            ],
            arguments.limit,
        )
        if run.code != 0:
            raise Failure(f"{network}: `berth schedule` ended with {run.code}: {run.text[-500:]}")
        found["bound"] = json.loads(run.text)["bound_bytes"]
    if not found["scheduled"]:
        raise Failure(
            f"{network}, batch {batch}: no step was scheduled: {found['last_refusal'] or found['last_divergence']}"
        )
    return found


def row_of(network, batch, found):
    resident = found["resident"]
    written, ours = resident + found["eager"], resident + found["ours"]
    mib = [f"{one / 2**20:,.1f}" for one in (resident, written, ours, found["bound"])]
    return [
        network,
        str(batch),
        f"{found['operators']:,}",
        *mib,
        f"{found['predicted_peak'] - ours:+,}",
        f"{100 * (1 - ours / written):.1f}",
    ]


def main(argv):
    report = peers.Report("step_networks", __doc__, limit="--limit", seconds=600)
    add = report.parser.add_argument
    packages.add_options(add)
    add("--batch", type=int, action="append", help="may be repeated (default: 1, 32)")
    add("--network", action="append", choices=[*ORDERS, "unet"], help=f"may be repeated (default: {', '.join(ORDERS)})")
    arguments = report.parser.parse_args(argv)
    arguments.build_dir, arguments.threads = arguments.build_dir.resolve(), 1
    if arguments.setup:
        packages.setup(launcher(arguments)[0][-1])
        return 0
    if arguments.smoke:
        arguments.batch, arguments.network = [1], ["unet"]
    rows, savings = [], {}
    for batch in arguments.batch or OLLAS:
        for network in arguments.network or ORDERS:
            rows.append(row_of(network, batch, measure(network, batch, arguments)))
            savings.setdefault(batch, []).append(float(rows[-1][-1]))
    means = " ".join(
        f"At batch {batch} {statistics.mean(some):.1f} % are saved on average{f', where OLLA published {OLLAS[batch]} %' if batch in OLLAS else ''}."
        for batch, some in savings.items()
    )
    report.keep(
        argv,
        arguments,
        f"MiB, weights included; plain SGD, an update for each parameter, random weights. {means}",
        HEADER,
        rows,
    )
    return 0


if __name__ == "__main__":
    training.run_main("step_networks", main)
