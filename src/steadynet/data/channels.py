"""Recognise images whose channels are the last axis."""

from __future__ import annotations

from collections.abc import Sequence

from steadynet.errors import UserError

CHANNELS = (1, 3, 4)  # grey, colours, colours with transparency


def looks_channels_last(image_shape: Sequence[int]) -> bool:
    """Whether the shape of one image looks like (height, width, channels).

    >>> looks_channels_last((28, 28, 1)), looks_channels_last((3, 32, 32)), looks_channels_last((1, 28, 1))
    (True, False, False)
    """
    if len(image_shape) != 3:
        return False
    height, width, channels = image_shape
    return channels in CHANNELS and min(height, width) > max(CHANNELS)


def check_channels_first(image_shape: Sequence[int], called: str) -> None:
    """Check that images do not look channels-last. With one channel they may: then there is only one order of pixels.

    Args:
        image_shape: The shape of one image.
        called: What the images are called in the error message.

    Raises:
        UserError: They do. The message says how to move the axis.
    """
    if looks_channels_last(image_shape) and image_shape[-1] > 1:
        height, width, channels = image_shape
        raise UserError(
            f"{called} has its channels last (height {height}, width {width}, channels {channels}): steadynet takes "
            "(N, C, H, W), which numpy.moveaxis(X, -1, 1) makes of it. If the network has dense layers only and takes "
            "the pixels in this order, give X.reshape(len(X), -1)."
        )
