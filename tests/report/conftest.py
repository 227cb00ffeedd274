"""The browser and the page that the tests of the page share."""

from __future__ import annotations

import pytest
import torch

from browsing import DRAWN, HOSTILE, until
from reports import browser, verdict, write_run
from steadynet.data import load
from steadynet.report.write import write_report
from steadynet.runs.tensors import save_tensors
from steadynet.verification.properties import Verdict

RADII = (0.1, 0.2)
IMAGES = 1250


@pytest.fixture(scope="session")
def driver():
    found = browser()
    yield found
    found.quit()


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """Two networks, 5,000 properties in all, a third of them refuted, with pictures; one says something hostile.

    The first image that a network is refuted on is misread as it is; on the others a change fools it.
    """
    folder = tmp_path_factory.mktemp("browser")
    test = load("digits").test
    for place, method in enumerate(("natural", "nbc")):
        run = folder / method
        rows = []
        for eps in RADII:
            for number in range(IMAGES):
                refuted = number % 3 == place
                name = f"counterexamples/{eps}-{number}.safetensors" if refuted else ""
                rows.append(
                    verdict(
                        number,  # those beyond the test images have no picture
                        eps,
                        Verdict.SAT if refuted else Verdict.UNSAT,
                        seconds=0.001 * (number + 1),
                        counterexample=name,
                        reason=HOSTILE if number == 1 else "",
                    )
                )
        write_run(run, rows, method=method)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.fsync", lambda file: None)  # these files need not survive a power cut
            for row in rows:
                if row.counterexample:
                    pixels = test.pixels(torch.tensor([row.index % len(test)]))[0]
                    change = 0.0 if row.index < 3 else row.eps  # the first image is misread as it is
                    save_tensors(run / row.counterexample, {"input": (pixels + change).clamp(0, 1)}, {})
    return write_report([folder / "natural", folder / "nbc"], folder / "report", figures=False)


@pytest.fixture
def opened(driver, page):
    """The page, with nothing remembered from the test before."""
    driver.execute_script("try { sessionStorage.clear() } catch { /* not on a page yet */ }")
    driver.get(page.as_uri())
    until(driver, DRAWN)
    return driver
