# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can act on: each message is a sentence that says what is wrong, where, and what to do."""

import difflib
from collections.abc import Iterable


class EstimationError(ValueError):
    """Something the user gave cannot be used; the message names the element, the rule and the remedy."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known name, or a list of the known ones, ready to append."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f" Did you mean '{near[0]}'?"
    if not known:
        return ''
    shown = ', '.join(known[:12]) + (', ...' if len(known) > 12 else '')
    return f' Known: {shown}.'
