"""Step programs whose tensors get other shapes, in Python because the body says so."""

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


if __name__ == "__main__":
    unittest.main()
