"""torchvision's ViT-L/16 on images of 224 x 224, as in rasbt/pytorch-memory-optim (torch 2.0, logs.md)."""

import argparse
import contextlib

parser = argparse.ArgumentParser()
parser.add_argument("--precision", choices=("32", "16-mixed", "bf16"), default="32")
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument(
    "--optimizer",
    choices=("adam", "adam-2.0", "sgd"),
    default="adam",
    help="adam-2.0: as torch 2.0 computes it, with one more temporary copy of the parameters than today's",
)
parser.add_argument("--small", action="store_true")
arguments = parser.parse_args()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torchvision.models import VisionTransformer, vit_l_16  # noqa: E402


class Adam20(torch.optim.Optimizer):
    """torch.optim.Adam(foreach=True) of torch 2.0."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
        self.steps = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.steps += 1
        parameters = [one for group in self.param_groups for one in group["params"] if one.grad is not None]
        for one in parameters:
            if not self.state[one]:
                self.state[one].update(first=torch.zeros_like(one), second=torch.zeros_like(one))
        gradients = [one.grad for one in parameters]
        first, second = ([self.state[one][name] for one in parameters] for name in ("first", "second"))
        torch._foreach_mul_(first, 0.9)
        torch._foreach_add_(first, gradients, alpha=0.1)
        torch._foreach_mul_(second, 0.999)
        torch._foreach_addcmul_(second, gradients, gradients, 0.001)
        roots = torch._foreach_sqrt(second)
        torch._foreach_div_(roots, (1 - 0.999**self.steps) ** 0.5)
        divisors = torch._foreach_add(roots, 1e-8)
        torch._foreach_addcdiv_(parameters, first, divisors, -self.param_groups[0]["lr"] / (1 - 0.9**self.steps))


with torch.device("cuda"):
    model = (
        VisionTransformer(image_size=224, patch_size=16, num_layers=2, num_heads=2, hidden_dim=64, mlp_dim=128)
        if arguments.small
        else vit_l_16(weights=None)
    )
    model.heads.head = torch.nn.Linear(64 if arguments.small else 1024, 10)
if arguments.precision == "bf16":
    model = model.to(torch.bfloat16)
    torch.cuda.empty_cache()
if arguments.optimizer == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
else:
    optimizer = (Adam20 if arguments.optimizer == "adam-2.0" else torch.optim.Adam)(model.parameters(), lr=5e-5)
mixed = arguments.precision == "16-mixed"
scaler = torch.amp.GradScaler("cuda", enabled=mixed)
for step in range(4 * arguments.accumulate):
    model.train()
    images = torch.zeros(arguments.batch_size, 3, 224, 224).to("cuda")
    labels = torch.zeros(arguments.batch_size, dtype=torch.long).to("cuda")
    if arguments.precision == "bf16":
        images = images.to(torch.bfloat16)
    with torch.autocast("cuda", dtype=torch.float16) if mixed else contextlib.nullcontext():
        logits = model(images)
        loss = F.cross_entropy(logits, labels) / arguments.accumulate
    if arguments.accumulate == 1:
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        if (step + 1) % arguments.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        predicted = torch.argmax(logits, 1)
