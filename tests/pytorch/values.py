"""Takes out of PyTorch's tests what compares values that kernels compute: on the stand-in these are noise.

The rest of such a test stays: what it allocates, frees, captures and raises, and the addresses, shapes and statistics that
it compares. ignore() changes assertions on tensors, on storages, and on the numbers read from a device by item().
"""


def of_any_order(kind):
    """The class of numbers, with every comparison true."""
    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        setattr(kind, name, lambda *_: True)
    kind.__hash__ = object.__hash__
    return kind


@of_any_order
class Noise(float):
    """A number read from a device that computes nothing."""


@of_any_order
class WholeNoise(int):
    """The same, of a whole number."""


def is_noise(value):
    import torch

    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(map(is_noise, value))
    # What was copied from the device is on the host by now.
    return isinstance(value, (Noise, WholeNoise, torch.Tensor, torch.UntypedStorage, torch.TypedStorage))


def unless_noise(assertion):
    """The assertion, which holds where one of the two things that it compares is noise."""

    def changed(self, *arguments, **named):
        if any(map(is_noise, arguments[:2])):
            return None
        return assertion(self, *arguments, **named)

    return changed


def same_shape(x, y):
    return getattr(x, "shape", None) == getattr(y, "shape", None)


def ignore():
    import sys

    import torch
    from torch.testing._internal import common_utils

    for name in (
        "assertEqual",
        "assertNotEqual",
        "assertTrue",
        "assertFalse",
        "assertLess",
        "assertLessEqual",
        "assertGreater",
        "assertGreaterEqual",
        "assertAlmostEqual",
    ):
        setattr(common_utils.TestCase, name, unless_noise(getattr(common_utils.TestCase, name)))

    item = torch.Tensor.item

    def noisy_item(self):
        value = item(self)
        if not self.is_cuda or isinstance(value, (bool, complex)):
            return value
        return Noise(value) if isinstance(value, float) else WholeNoise(value)

    torch.Tensor.item = noisy_item
    for name in ("equal", "allclose"):
        plain = getattr(torch, name)
        setattr(
            torch,
            name,
            lambda x, y, *rest, plain=plain, **named: (
                same_shape(x, y) if is_noise((x, y)) else plain(x, y, *rest, **named)
            ),
        )
    if "torch._dynamo.testing" in sys.modules:
        for module in list(sys.modules.values()):
            if getattr(module, "same", None) is sys.modules["torch._dynamo.testing"].same:
                module.same = lambda *_, **__: True
