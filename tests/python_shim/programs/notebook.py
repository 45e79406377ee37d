"""A notebook's cells: compiled one by one in one namespace, with the import in the third."""

import sys

import torch

cells = [
    "import torch\nnet = torch.nn.Linear(64, 64)",
    "optimizer = torch.optim.AdamW(net.parameters())",
    "import berth\nberth.install(sys.argv[1]) if len(sys.argv) > 2 else None",
    "net.to(sys.argv[1])",
    "for _ in range(50):\n    x = torch.ones(8, 64, device=sys.argv[1])\n    loss = net(x).square().mean()\n    loss.backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()",
    "print(tuple(loss.shape), berth.installed() == (len(sys.argv) > 2))",
]
torch.manual_seed(0)
namespace = {"sys": sys}
for number, cell in enumerate(cells):
    exec(compile(cell, f"<ipython-input-{number}>", "exec"), namespace)
