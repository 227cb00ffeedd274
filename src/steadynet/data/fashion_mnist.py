"""Fashion-MNIST: 70,000 pieces of clothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from steadynet.data.base import DatasetPlugin
from steadynet.data.idx import PACKED_IDX_FILES, decode_idx_files
from steadynet.data.sources import Download, Folder, Source


@dataclass(frozen=True)
class FashionMnist(DatasetPlugin):
    """60,000 training and 10,000 test images of clothing, 28×28 grey. Debian has it as dataset-fashion-mnist."""

    name: ClassVar[str] = "fashion-mnist"
    summary: ClassVar[str] = "pieces of clothing, 28×28 grey; 60,000 training, 10,000 test"
    licence: ClassVar[str] = "Fashion-MNIST by Zalando SE, MIT"
    image_shape: ClassVar[tuple[int, int, int]] = (1, 28, 28)
    classes: ClassVar[tuple[str, ...]] = (
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    )
    hashes: ClassVar[Mapping[str, str]] = {
        "train_images": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "train_labels": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "test_images": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "test_labels": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    }
    published_files: ClassVar[tuple[str, ...]] = PACKED_IDX_FILES
    sources: ClassVar[tuple[Source, ...]] = (
        Folder("/usr/share/datasets/fashion-mnist", decode_idx_files),
        Download("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", decode_idx_files, PACKED_IDX_FILES),
        Download(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            decode_idx_files,
            PACKED_IDX_FILES,
        ),
    )
