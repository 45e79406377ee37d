"""Networks of plain torch.nn."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Twice(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__()
        for index in (0, 1):
            self.append(nn.Conv2d(outputs if index else inputs, outputs, 3, padding=1, bias=False))
            self.append(nn.BatchNorm2d(outputs))
            self.append(nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Ronneberger et al. 2015, with padding and norms: four times down and up again, 64 to 1,024 channels."""

    def __init__(self, classes=2, width=64, depth=4):
        super().__init__()
        widths = [width << k for k in range(depth + 1)]
        self.down = nn.ModuleList(Twice(a, b) for a, b in zip([3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(Twice(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for stage in self.down[:-1]:
            kept.append(stage(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat((kept.pop(), up(x)), 1))
        return self.head(x)


class Translator(nn.Module):
    """Vaswani et al. 2017, base."""

    def __init__(self, words, layers):
        super().__init__()
        self.words, self.body = nn.Embedding(words, 512), nn.Transformer(512, 8, layers, layers, 2048, batch_first=True)

    def forward(self, source, target):
        hidden = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return F.linear(self.body(self.words(source), self.words(target), tgt_mask=hidden), self.words.weight)


class Lstm(nn.Module):
    """Zaremba et al. 2014, large: two layers of 1,500 units over words."""

    def __init__(self, words, width):
        super().__init__()
        self.words, self.body = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True, dropout=0.65)
        self.drop, self.head = nn.Dropout(0.65), nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.drop(self.body(self.drop(self.words(x)))[0]))
