"""torchvision, which some benches need and torch does not bring: in build/packages, beside the interpreter that has torch and transformers."""

import training
from training import ROOT

FOLDER = ROOT / "build/packages"
PACKAGES = ["torchvision==0.26.0", "pillow==13.0.0"]
# The networks, for programs that run in the interpreter.
NETWORKS = ROOT / "bench/tools/network_children"


def add_options(add):
    add(
        "--setup",
        action="store_true",
        help=f"put torchvision into {FOLDER.relative_to(ROOT)} (pip, 15 MB), and nothing else",
    )


def setup(python):
    # Without what torchvision asks for: it would bring another torch.
    training.run(
        [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--upgrade",
            "--target",
            FOLDER,
            *PACKAGES,
        ]
    )


def path(*folders):
    """What PYTHONPATH is to be, beside the folders given."""
    return ":".join(map(str, [*folders, NETWORKS, FOLDER]))
