# SPDX-License-Identifier: Apache-2.0
"""Which parameters go plain, as the library's compressor would decide it: those can travel together."""

import re
from typing import NamedTuple, Optional


class Policy(NamedTuple):
    """The settings of a compressor, except the schedule."""

    codec: str
    min_count: int
    vectors: bool
    include: Optional[str]
    exclude: Optional[str]
    rules: tuple  # of (pattern, codec)


def listed(patterns) -> Optional[str]:
    """Patterns as the library takes them: one text, separated by commas."""
    if patterns is None or isinstance(patterns, str):
        return patterns
    return ",".join(patterns)


def matches(pattern: str, name: str) -> bool:
    """Only * and ? mean something."""
    expression = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch(expression, name, re.DOTALL) is not None


def _any(patterns, name):
    return any(matches(pattern, name) for pattern in patterns.split(","))


def is_none(codec: str) -> bool:
    return codec.split(",")[0].strip() == "none"


def plain_reason(policy: Policy, name: str, shape) -> Optional[str]:
    """The reason why it goes plain; None: it is compressed."""
    count = 1
    for length in shape:
        count *= length
    for pattern, codec in reversed(policy.rules):
        if matches(pattern, name):
            return f"rule '{pattern}'" if is_none(codec) else None
    if policy.include is not None and not _any(policy.include, name):
        return "not among those included"
    if policy.exclude is not None and _any(policy.exclude, name):
        return "excluded"
    if len(shape) < 2 and not policy.vectors:
        return "has fewer than two dimensions"
    if count < policy.min_count:
        return f"fewer than {policy.min_count} elements"
    return "the codec is none" if is_none(policy.codec) else None
