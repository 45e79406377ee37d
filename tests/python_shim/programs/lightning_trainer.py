"""The Trainer of Lightning: its own loop."""

import logging
import warnings

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

import lightning  # noqa: E402
from common import DEVICE, network, show, torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = network()

    def training_step(self, x, index):
        return (self.net(x) - x).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


torch.manual_seed(0)
rows = torch.randn(640, 64)
module = Module()
trainer = lightning.Trainer(
    accelerator=DEVICE if DEVICE == "cpu" else "gpu",
    devices=1,
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(module, DataLoader(rows, batch_size=16))
show(module.net[0].weight)
