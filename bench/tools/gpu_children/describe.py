"""The GPU, its driver and torch."""

import pathlib
import re

import child

arguments = child.parser(__doc__).parse_args()
import torch  # noqa: E402

properties = torch.cuda.get_device_properties(0)
driver = pathlib.Path("/proc/driver/nvidia/version")
version = re.search(r"(\d+\.\d+(\.\d+)?)", driver.read_text()) if driver.is_file() and not child.STANDIN else None
if version is None and not child.STANDIN:
    import shutil
    import subprocess

    if shutil.which("nvidia-smi"):
        version = re.search(
            r"(\d+\.\d+(\.\d+)?)",
            subprocess.run(
                ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
            ).stdout,
        )
child.write(
    arguments,
    {
        "gpu": properties.name + (" (stand-in)" if child.STANDIN else ""),
        "gpus": torch.cuda.device_count(),
        "gpu_memory_bytes": properties.total_memory,
        "driver": version.group(1) if version else "unknown",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    },
)
