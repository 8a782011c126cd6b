"""A real browser without a window, for tests of pages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_TIMEOUT_S = 90


def dom_of(page: Path, folder: Path) -> str:
    """The document of a page after its scripts ran; skips where there is no browser."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"needs a browser: one of {', '.join(NAMES)} on the path")
    done = subprocess.run(
        [
            found, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-extensions", "--disable-dev-shm-usage",
            f"--user-data-dir={folder / 'profile'}", "--window-size=1280,900",
            "--enable-logging=stderr", "--dump-dom", page.absolute().as_uri(),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    told = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not told, told  # a script that failed, or something that the page's policy refused
    return done.stdout
