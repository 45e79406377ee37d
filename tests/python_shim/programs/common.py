"""What the programs share: a small network on a device that the first argument names, and losses to the bit.

On the stand-in values mean nothing, so there only counts and shapes are printed.
"""

import sys

import torch

DEVICE = sys.argv[1]
torch.set_num_threads(1)


def network(seed=0, width=64):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)
    ).to(DEVICE)


def batch(width=64, rows=16):
    return torch.randn(rows, width, device=DEVICE)


def show(*values):
    """Prints values to the bit; of CUDA only that they are there."""
    print(
        *(
            value.detach().float().cpu().sum().item().hex() if DEVICE == "cpu" else tuple(value.shape)
            for value in values
        )
    )


def train(net, optimizer, steps=60, loss_of=None):
    """Plain steps; shows the last loss."""
    for _ in range(steps):
        x = batch()
        loss = loss_of(net, x) if loss_of else (net(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    show(loss)
