# SPDX-License-Identifier: Apache-2.0
"""Where the sources and the built programs are, and how a test file says that it cannot be tested here."""

import os
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("HEARTH_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BINARY = Path(os.environ.get("HEARTH_BINARY_DIR", SOURCE / "build"))
HEARTH = BINARY / "hearth"


def unbuilt(*programs):
    """Which of them is not there; None."""
    return next((f"{program} is not built" for program in programs if not program.exists()), None)


def require(missing):
    """Skips the file that calls this, unless nothing is missing."""
    if missing:
        raise unittest.SkipTest(missing)
