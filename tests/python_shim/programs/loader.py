"""A DataLoader with workers and pinned memory."""

from common import DEVICE, network, show, torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = TensorDataset(torch.randn(256, 64), torch.arange(256))
net = network()
optimizer = torch.optim.AdamW(net.parameters())
for workers in (0, 2):
    for _ in range(4):
        for x, _ in DataLoader(rows, batch_size=16, num_workers=workers, pin_memory=DEVICE == "cuda"):
            x = x.to(DEVICE, non_blocking=True)
            loss = (net(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    show(loss)
