"""Changed files against the readers: each is refused in one line or read rightly, in seconds, and nothing crashes.

The long form: ``python tests/fuzz.py --cases 52000`` (``make fuzz``). What fails is saved, and the exit code is 1.
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
from fuzz_models import changed_model, models
from fuzz_texts import ONES, TWOS, changed_bytes, changed_meaning, changed_tree, changed_words

HANGING = 10.0  # seconds
STARTING = 120.0
MEMORY = 8 * 2**30  # bytes that a reader may ask for
SHARES = {"vnnlib 1.0": 4, "vnnlib 2.0": 4, "vnnlib gzip": 1, "onnx bytes": 2, "onnx parts": 2}  # of the cases
TURNS = [kind for kind, share in SHARES.items() for _ in range(share)]
SUFFIXES = {kind: ".onnx" if "onnx" in kind else ".vnnlib.gz" if "gzip" in kind else ".vnnlib" for kind in SHARES}


def kind_of(number: int) -> str:
    """Kinds take turns by their shares."""
    return TURNS[number % len(TURNS)]


def make(number: int) -> bytes:
    """The file of a case."""
    kind = kind_of(number)
    dice = random.Random(f"{kind} {number}")
    if kind.startswith("onnx"):
        return (changed_bytes if kind == "onnx bytes" else changed_model)(dice.choice(models()), dice)
    text = dice.choice({"vnnlib 1.0": ONES, "vnnlib 2.0": TWOS}.get(kind, ONES + TWOS))
    if kind == "vnnlib gzip" and dice.random() < 0.5:
        return changed_bytes(gzip.compress(text.encode(), mtime=0), dice)
    (change,) = dice.choices((_changed_letters, changed_words, changed_tree, changed_meaning), (5, 3, 4, 8))
    content = change(text, dice).encode("utf-8", "surrogateescape")
    return gzip.compress(content, mtime=0) if kind == "vnnlib gzip" else content


def _changed_letters(text: str, dice: random.Random) -> str:
    return changed_bytes(text.encode(), dice).decode("utf-8", "surrogateescape")


def outcome(number: int, folder: Path) -> str:
    """``error`` or ``reading``, or what is wrong."""
    kind = kind_of(number)
    path = folder / f"case{SUFFIXES[kind]}"
    path.write_bytes(make(number))
    try:
        return judge(path)
    except Exception:
        return traceback.format_exc()


def _work(numbers: range, pipe: Connection) -> None:
    import resource  # not on Windows, nor needed there

    import torch

    torch.set_num_threads(1)
    models()
    with open(os.devnull, "w") as nowhere:  # the standard's parser prints warnings past Python
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with TemporaryDirectory() as folder:
        pipe.send("ready")
        for number in numbers:
            pipe.send(outcome(number, Path(folder)))


def outcomes(
    numbers: range, work: Callable[[range, Connection], None] = _work, patience: float = HANGING
) -> Iterator[tuple[int, str]]:
    """Each case's outcome; they run in a process of their own, which may hang or crash and is then replaced."""
    while numbers:
        pipe, inner = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=work, args=(numbers, inner), daemon=True)
        process.start()
        inner.close()
        try:
            assert pipe.poll(STARTING)
            assert pipe.recv() == "ready"
            while numbers:
                said = pipe.recv() if pipe.poll(patience) else f"no answer in {patience:.0f} s"
                yield numbers[0], said
                numbers = numbers[1:]
                if said.startswith("no answer"):
                    break
        except EOFError:
            process.join()
            yield numbers[0], f"the process ended with {process.exitcode}"
            numbers = numbers[1:]
        finally:
            process.kill()
            process.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=52_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path("build/fuzz"), help="where cases that fail are saved")
    options = parser.parse_args()
    start, counts, failures = time.perf_counter(), Counter(), 0
    for number, said in outcomes(range(options.first, options.first + options.cases)):
        kind = kind_of(number)
        counts[kind, said if said in ("error", "reading") else "FAILED"] += 1
        if said not in ("error", "reading"):
            failures += 1
            options.save.mkdir(parents=True, exist_ok=True)
            path = options.save / f"{number}{SUFFIXES[kind]}"
            path.write_bytes(make(number))
            print(f"case {number} ({kind}), saved as {path}: {said}", flush=True)
    for key, count in sorted(counts.items()):
        print(*key, count)
    print(f"{options.cases} cases in {time.perf_counter() - start:.0f} s, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
