# SPDX-License-Identifier: Apache-2.0
"""Hearth: train one model on the machines you own."""

from ._library import __version__  # noqa: F401
