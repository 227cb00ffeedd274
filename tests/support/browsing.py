"""What the tests do with a page in a browser."""

from __future__ import annotations

import time

HOSTILE = "</script><img src=x onerror=\"document.title='hurt'\">"
UNFOLD = "document.querySelectorAll('.fold').forEach((details) => { details.open = true })"
DRAWN = "return document.querySelectorAll('.card').length > 0"  # the last that the page writes


def texts(driver, selector):
    return driver.execute_script(
        f"return [...document.querySelectorAll({selector!r})].map((element) => element.innerText.trim())"
    )


def choose(driver, place, label, value):
    driver.execute_script(
        f"const select = document.querySelector('{place} select[data-filter={label}]');"
        f"select.value = {value!r}; select.dispatchEvent(new Event('change'))"
    )


def until(driver, script, seconds=15):
    end = time.perf_counter() + seconds
    while not driver.execute_script(script):
        assert time.perf_counter() < end, script
        time.sleep(0.05)
