"""Automatic mixed precision with a GradScaler, and gradient checkpointing."""

from common import DEVICE, batch, network, show, torch
from torch.utils.checkpoint import checkpoint

kind = torch.bfloat16 if DEVICE == "cpu" else torch.float16
net = network()
optimizer = torch.optim.AdamW(net.parameters())
scaler = torch.amp.GradScaler(DEVICE)
for _ in range(60):
    x = batch()
    for reentrant in (False, True):
        with torch.autocast(DEVICE, dtype=kind):
            loss = checkpoint(net, x.requires_grad_(reentrant), use_reentrant=reentrant).square().mean()
        scaler.scale(loss).backward()
    if DEVICE == "cpu":
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
show(loss)
