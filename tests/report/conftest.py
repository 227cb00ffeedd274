"""The browser that all tests of the page share."""

from __future__ import annotations

import pytest

from reports import browser


@pytest.fixture(scope="session")
def driver():
    found = browser()
    yield found
    found.quit()
