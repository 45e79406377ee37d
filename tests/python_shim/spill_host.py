"""Programs whose schedules copy to the host, which has room for a part of that."""

from spill_programs import PROGRAM

# Five kinds of steps, each within a budget that copies meet.
HOSTED = (
    PROGRAM
    + """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.LSTM(32, 64, 3, batch_first=True)
    def forward(self, x): return self.inner(x)[0]

def block(width, *more): return [nn.Linear(width, width), *more]
net, size = {
    "blocks": lambda: (Net(64, 4), None),
    "recurrent": lambda: (Recurrent(), (32, 24, 32)),
    "deep": lambda: (nn.Sequential(*(one for _ in range(12) for one in block(64, nn.Tanh(), nn.LayerNorm(64)))), (1024, 64)),
    "wide": lambda: (nn.Sequential(*(one for _ in range(6) for one in block(256, nn.GELU()))), (256, 256)),
    "images": lambda: (nn.Sequential(nn.Conv2d(3, 16, 3), *(one for _ in range(8) for one in (nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU()))), (8, 3, 24, 24)),
}[variant]()
share = 65 if variant == "images" else 55
optimizer = torch.optim.AdamW(net.parameters())
program = program_of(copy_rate=4 * 10**9, memory_budget=f"{share}%")
for step in range(6):
    x = torch.randint(200, (16, 32)) if size is None else torch.randn(size)
    with program.step():
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
stats = program.stats()
said(state=digest([*state_of(net, optimizer), torch.get_rng_state()]), scheduled=stats.scheduled, offloaded=stats.host_peak, spilled=stats.spilled_peak,
     not_met=stats.budget_not_met, share=share / 100, predicted=stats.predicted_peak, recorded=stats.recorded_peak, resident=stats.resident)
"""
)
