"""The six networks of the paper (Table 7; the parameter counts agree once its misprints are corrected).

Each is a plain ``nn.Sequential`` with a ReLU after every layer but the last.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from steadynet.errors import UserError


@dataclass(frozen=True)
class Architecture:
    """A convolutional network for images of any size.

    Attributes:
        summary: The layers in words.
        image_shape: The shape of the images in the paper, (channels, height, width).
        convolutions: The channels, kernel size, stride and padding of each convolution.
        dense: The widths of the dense layers, without the last one.
    """

    summary: str
    image_shape: tuple[int, int, int]
    convolutions: tuple[tuple[int, int, int, int], ...]
    dense: tuple[int, ...]

    def build(self, image_shape: tuple[int, ...] | None = None, classes: int = 10) -> nn.Sequential:
        """Build the network with new weights.

        Args:
            image_shape: The shape of the images; that of the paper unless given.
            classes: The number of classes.

        Raises:
            UserError: The images have no height and width, or are too small for the convolutions.

        >>> ARCHITECTURES["M1"].build((1, 8, 8), classes=3)[-1]
        Linear(in_features=100, out_features=3, bias=True)
        """
        shape = tuple(image_shape or self.image_shape)
        if len(shape) != 3:
            raise UserError(f"a convolutional network needs images (channels, height, width), not {shape}")
        channels, height, width = shape
        layers: list[nn.Module] = []
        for outputs, kernel, stride, padding in self.convolutions:
            layers += [nn.Conv2d(channels, outputs, kernel, stride, padding), nn.ReLU()]
            channels = outputs
            height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        if min(height, width) < 1:
            raise UserError(f"images of {shape[1]}×{shape[2]} pixels are too small for this network")
        layers.append(nn.Flatten())
        features = channels * height * width
        for outputs in self.dense:
            layers += [nn.Linear(features, outputs), nn.ReLU()]
            features = outputs
        return nn.Sequential(*layers, nn.Linear(features, classes))


_BIG = ((32, 3, 1, 1), (32, 4, 2, 1), (64, 3, 1, 1), (64, 4, 2, 1))

ARCHITECTURES = {
    "M1": Architecture("2 convolutions, 2 dense", (1, 28, 28), ((16, 4, 2, 1), (32, 4, 2, 1)), (100,)),
    "M2": Architecture("2 convolutions (5×5), 2 dense", (1, 28, 28), ((16, 5, 2, 2), (32, 5, 2, 2)), (100,)),
    "M3": Architecture("4 convolutions, 3 dense", (1, 28, 28), _BIG, (512, 512)),
    "C1": Architecture("2 convolutions, 3 dense", (3, 32, 32), ((16, 4, 2, 0), (32, 4, 2, 0)), (128, 64)),
    "C2": Architecture("2 wider convolutions, 3 dense", (3, 32, 32), ((32, 4, 2, 0), (64, 4, 2, 0)), (128, 64)),
    "C3": Architecture("4 convolutions, 3 dense", (3, 32, 32), _BIG, (512, 512)),
}
