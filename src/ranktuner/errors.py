"""What RankTuner raises: one base class and a few children, each also a standard error.

Every message says three things: the value that was found, what was expected, and the next step.
`assert` is for our own mistakes; these are for the user's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RankTunerError(Exception):
    """Base of every error meant for the user; the command line prints it without a traceback."""


class InputError(RankTunerError, ValueError):
    """A value, name, shape or option that cannot be used as given."""


class DataError(RankTunerError, ValueError):
    """A row, file or record that cannot be read; names file and line where there are any."""


class UnsupportedError(RankTunerError, RuntimeError):
    """A model, trainer or combination in which a setting could not take effect: refused, never ignored."""


class NonFiniteError(RankTunerError, ArithmeticError):
    """A NaN or an infinity where a finite number was needed; names the sequence and position."""


class MissingExtraError(RankTunerError, ImportError):
    """An optional dependency is not installed; names the extra that brings it."""


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """Return the error for an absent optional package, naming the extra to install."""
    return MissingExtraError(
        f"{purpose} needs the package {package!r}, which is not installed: pip install 'ranktuner[{extra}]'"
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the tail of a message for an unknown name: the nearest known ones, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(repr(n) for n in near) + "?"
    return "known: " + ", ".join(sorted(known))
