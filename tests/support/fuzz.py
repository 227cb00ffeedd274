"""Fuzzing of the readers: a mutated file must be refused in one line or read correctly, in seconds, without a crash.

``make fuzz`` runs the long form, ``python tests/support/fuzz.py --cases 52000``. Files that make a reader fail are
saved, and the exit code is then 1. Each file is reproducible: it depends on its number alone.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz_judges import judge
from fuzz_models import models, mutate_model
from fuzz_outcomes import READY, Kind, Outcome
from fuzz_texts import VERSION1_TEXTS, VERSION2_TEXTS, mutate_bytes, mutate_meaning, mutate_tree, mutate_words

FILE_TIMEOUT = 10.0  # seconds; a reader that takes longer hangs
START_TIMEOUT = 120.0
MAX_MEMORY = 8 * 2**30  # bytes that a reader may allocate
# the share of each format in the files
SHARES = {"vnnlib 1.0": 4, "vnnlib 2.0": 4, "vnnlib gzip": 1, "onnx bytes": 2, "onnx parts": 2}
ROUND = [name for name, share in SHARES.items() for _ in range(share)]
SUFFIXES = {name: ".onnx" if "onnx" in name else ".vnnlib.gz" if "gzip" in name else ".vnnlib" for name in SHARES}


def format_of(number: int) -> str:
    """The format of a file; the formats take turns."""
    return ROUND[number % len(ROUND)]


def make_file(number: int) -> bytes:
    """The content of a file."""
    file_format = format_of(number)
    rng = random.Random(f"{file_format} {number}")
    if file_format.startswith("onnx"):
        return (mutate_bytes if file_format == "onnx bytes" else mutate_model)(rng.choice(models()), rng)
    texts = {"vnnlib 1.0": VERSION1_TEXTS, "vnnlib 2.0": VERSION2_TEXTS}
    text = rng.choice(texts.get(file_format, VERSION1_TEXTS + VERSION2_TEXTS))
    if file_format == "vnnlib gzip" and rng.random() < 0.5:
        return mutate_bytes(gzip.compress(text.encode(), mtime=0), rng)
    (mutate,) = rng.choices((_mutate_letters, mutate_words, mutate_tree, mutate_meaning), (5, 3, 4, 8))
    content = mutate(text, rng).encode("utf-8", "surrogateescape")
    return gzip.compress(content, mtime=0) if file_format == "vnnlib gzip" else content


def _mutate_letters(text: str, rng: random.Random) -> str:
    return mutate_bytes(text.encode(), rng).decode("utf-8", "surrogateescape")


def outcome_of(number: int, folder: Path) -> Outcome:
    """Read one file and judge what was read."""
    path = folder / f"case{SUFFIXES[format_of(number)]}"
    path.write_bytes(make_file(number))
    try:
        return Outcome(judge(path))
    except Exception:
        return Outcome(Kind.WRONG, traceback.format_exc())


def _work(numbers: range, pipe: Connection) -> None:
    import resource  # Windows does not have it, and does not need it

    import torch

    torch.set_num_threads(1)
    models()
    with open(os.devnull, "w") as nowhere:  # the standard's parser prints warnings from C++
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    with TemporaryDirectory() as folder:
        pipe.send(READY)
        for number in numbers:
            pipe.send(outcome_of(number, Path(folder)))


def outcomes(
    numbers: range, work: Callable[[range, Connection], None] = _work, timeout: float = FILE_TIMEOUT
) -> Iterator[tuple[int, Outcome]]:
    """The outcome of each file. A separate process reads them; if it hangs or crashes, another one takes over."""
    while numbers:
        pipe, inner = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=work, args=(numbers, inner), daemon=True)
        process.start()
        inner.close()
        try:
            assert pipe.poll(START_TIMEOUT)
            assert pipe.recv() == READY
            hung = False
            while numbers and not hung:
                hung = not pipe.poll(timeout)
                yield numbers[0], Outcome(Kind.HUNG, f"no answer in {timeout:.0f} s") if hung else pipe.recv()
                numbers = numbers[1:]
        except EOFError:
            process.join()
            yield numbers[0], Outcome(Kind.CRASHED, f"the process ended with {process.exitcode}")
            numbers = numbers[1:]
        finally:
            process.kill()
            process.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=52_000, help="how many files")
    parser.add_argument("--first", type=int, default=0, help="the number of the first file")
    parser.add_argument("--save", type=Path, default=Path("build/fuzz"), help="where files that fail are saved")
    options = parser.parse_args()
    start, counts, failures = time.perf_counter(), Counter(), 0
    for number, outcome in outcomes(range(options.first, options.first + options.cases)):
        file_format = format_of(number)
        counts[file_format, outcome.kind.value] += 1
        if outcome.failed:
            failures += 1
            options.save.mkdir(parents=True, exist_ok=True)
            path = options.save / f"{number}{SUFFIXES[file_format]}"
            path.write_bytes(make_file(number))
            print(f"file {number} ({file_format}), saved as {path}: {outcome.detail}", flush=True)
    for key, count in sorted(counts.items()):
        print(*key, count)
    print(f"{options.cases} files in {time.perf_counter() - start:.0f} s, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
