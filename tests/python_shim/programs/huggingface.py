"""The Trainer of transformers: its own loop, with accelerate under it."""

import os

os.environ.update(
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    ACCELERATE_USE_CPU="true" if __import__("sys").argv[1] == "cpu" else "false",
)

from common import DEVICE, show, torch  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments  # noqa: E402

torch.manual_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(
        n_layer=2, n_head=2, n_embd=32, n_positions=32, vocab_size=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (64, 32))]
arguments = TrainingArguments(
    output_dir="out",
    max_steps=40,
    per_device_train_batch_size=4,
    report_to=[],
    save_strategy="no",
    logging_strategy="no",
    disable_tqdm=True,
    use_cpu=DEVICE == "cpu",
    seed=0,
    data_seed=0,
)
trainer = Trainer(model=model, args=arguments, train_dataset=rows)
trainer.remove_callback(PrinterCallback)  # which prints how long it took
trainer.train()
show(model.transformer.wte.weight)
