"""Step programs whose tensors get other shapes, in Python: because the body says so, or because data do."""

import unittest

from step_case import StepCase


class Shapes(StepCase):
    def test_places_for_results_may_not_fit(self):
        self.check(
            """
def places():
    weight, kept = torch.randn(32, 32), torch.empty(0)
    def body(k):
        x = torch.randn(16, 32) @ weight
        torch.mm(x, weight, out=kept)
        both = torch.cat([x, x * 2], out=torch.empty(0))
        values, indices = torch.topk(x, 3, out=(torch.empty(0), torch.empty(0, dtype=torch.long)))
        left = [kept.sum(), both.relu().sum(), values.sum(), indices.sum(), x.resize_(8, 32).sum()]
        kept.resize_(0)
        return left
    return body
for options in ({}, {"memory_budget": "60%"}):
    same, stats = as_eager(places, **options)
    print(same and stats.refused == 0, stats.scheduled >= 4, "" if stats.refused == 0 and stats.scheduled >= 4 else stats)
""",
            2,
        )

    def test_numbers_and_generators_go_on_in_another_program(self):
        """Also those that the program, by which the step began, was recorded with."""
        self.check(
            """
numbers = [2.0, 3.0, 2.0, 3.0, 5.0, 3.0, 2.0, 3.0, 3.0, 2.0, 3.0, 5.0, 2.0]
def clamped():
    weight = torch.randn(8, 8)
    def body(k):
        x = torch.randn(4, 8).clamp(max=numbers[k] / 10)
        return [(x @ weight).relu() if k % 2 == 0 else (x @ weight).tanh()]
    return body
def drawn():
    weight, generators = torch.randn(8, 8), [torch.Generator().manual_seed(n) for n in range(3)]
    def body(k):
        x = torch.randn(4, 8, generator=generators[{2.0: 0, 3.0: 1, 5.0: 2}[numbers[k]]])
        return [(x @ weight).relu() if k % 2 == 0 else (x @ weight).tanh(), *(one.get_state() for one in generators)]
    return body
def two_networks():
    one, other = nn.Linear(8, 8), nn.Linear(8, 8)
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (one, other)]
    def body(k):
        optimizers[0].param_groups[0]["lr"] = numbers[k] / 100
        x = torch.randn(4, 8)
        for n in range(1 + k % 2):
            optimizers[n].zero_grad()
            one(other(x)).square().sum().backward()
            optimizers[n].step()
        return [*one.parameters(), *other.parameters()]
    return body
for make in (clamped, drawn, two_networks): say(make, least=6, steps=13)
""",
            3,
        )

    def test_data_may_decide_shapes(self):
        self.check(
            """
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.router = nn.Linear(16, 32), nn.Linear(32, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3))
    def forward(self, x):
        x = self.enter(x).relu()
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for n, expert in enumerate(self.experts):
            token, rank = torch.where(chosen == n)
            out[token] += weights[token, rank, None] * expert(x[token])
        return x + out
def experts():
    net, out = Experts(), nn.Linear(32, 4)
    optimizer = torch.optim.AdamW([*net.parameters(), *out.parameters()], 1e-3)
    def body(k):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(out(net(torch.randn(64, 16))), torch.randint(4, (64,)))
        loss.backward()
        optimizer.step()
        return [loss, *(p.grad for p in net.parameters()), *net.parameters()]
    return body
def masked():
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def body(k):
        optimizer.zero_grad()
        y, mask = net(torch.randn(48, 16)), torch.rand(48) < 0.3
        loss = nn.functional.cross_entropy(y[mask], torch.randint(8, (48,))[mask])
        loss.backward()
        optimizer.step()
        return [loss, *(p.grad for p in net.parameters()), *net.parameters()]
    return body
for make in experts, masked:
    for options in ({}, {"memory_budget": "60%"}):
        same, stats = as_eager(make, steps=12, **options)
        print(same, stats.scheduled >= 6 and 0 < stats.barriers < stats.operators, "" if same and stats.scheduled >= 6 else stats)
""",
            4,
        )

    def test_data_may_decide_what_is_kept_inside_of_barriers(self):
        self.check(
            """
def sparse():
    table, net = nn.Embedding(40, 16, sparse=True), nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizers = [torch.optim.SparseAdam(list(table.parameters()), 0.01), torch.optim.Adam(net.parameters(), 0.01)]
    def body(k):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(table(torch.randint(40, (24,)))), torch.randint(4, (24,)))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return [loss, *table.parameters(), *net.parameters()]
    return body
def letters():
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 12))
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    def body(k):
        optimizer.zero_grad()
        x = net(torch.randn(30, 4, 8)).log_softmax(-1)
        lengths, of_input = torch.randint(2, 11, (4,)), torch.randint(24, 31, (4,))
        loss = nn.functional.ctc_loss(x, torch.randint(1, 12, (4, 10)), of_input, lengths)
        loss.backward()
        optimizer.step()
        return [loss, *net.parameters()]
    return body
for make in sparse, letters:
    same, stats = as_eager(make, steps=14, engine="release")
    print(same, stats.scheduled >= 10, "" if same and stats.scheduled >= 10 else stats)
""",
            2,
        )


if __name__ == "__main__":
    unittest.main()
