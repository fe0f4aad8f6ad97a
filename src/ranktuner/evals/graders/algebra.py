"""Whether two expressions are equal, by computer algebra (math-verify over sympy), with settings chosen for grading.

Runs in a worker that is killed when it takes too long: nothing here has a time limit of its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ranktuner.errors import missing_extra


class UnreadableError(Exception):
    """An answer is no mathematics that can be read; the text says which part."""


@lru_cache(maxsize=1)
def _tools() -> tuple[Callable[[str], Any], Callable[..., bool]]:
    """Return (read, verify): LaTeX -> sympy, and math-verify's comparison.

    `read` is math-verify's own parser with other settings: capital and small letters are different (by default
    `R^2 - r^2` is 0), units stay (`6m` would be 6), and every symbol is real, so that a letter is the same symbol on
    both sides whether or not an i stands beside it.
    """
    try:
        from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
        from latex2sympy2_extended.latex2sympy2 import ConversionConfig
        from math_verify import verify
    except ImportError:
        raise missing_extra("math-verify", "eval", "grading mathematics") from None
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    normal = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none")
    convert = ConversionConfig(lowercase_symbols=False)

    def read(text: str) -> Any:
        tidy = normalize_latex(text, config=normal)
        return latex2sympy(tidy, is_real=True, normalization_config=None, conversion_config=convert)

    return read, verify


_LETTERS = re.compile(r"(?<![a-zA-Z\\])([EeI])_(?:\{\s*\\?([\w\s]+)\}|(\w))|(?<![a-zA-Z\\])I(?![a-zA-Z(])")
"""Letters that the parser takes for numbers: E and e with an index, and I, which it takes for the imaginary unit."""


_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))")
_OF_ANGLES = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")


def _degrees(match: re.Match[str]) -> str:
    """Return what degrees are inside `\\cos 15^\\circ`; where no function takes them, their sign is only a unit."""
    return rf"{{\frac{{{match.group(1)}\pi}}{{180}}}}" if _OF_ANGLES.search(match.string) else match.group(1)


def _index(match: re.Match[str]) -> str:
    if match.group(1) is None:
        return "q_{I}"
    return f"q_{{{match.group(1)}{(match.group(2) or match.group(3)).strip()}}}"


@lru_cache(maxsize=512)
def expression(text: str) -> Any:
    """Return the sympy object of a LaTeX or plain expression; `UnreadableError` where there is none."""
    from sympy import Derivative, I, Symbol

    read, _ = _tools()
    text = _DEGREES.sub(_degrees, text)
    try:
        found = read(_LETTERS.sub(_index, re.sub(r"_\{\\(odot|oplus)\s*\}", r"_{\1}", text)))
        found = found.subs(Symbol("i", real=True), I) if Symbol("i", real=True) in found.free_symbols else found
        # dM/dt is a quantity of its own; left to simplify, M is a constant and dM/dt is 0.
        unknown = [d for d in found.atoms(Derivative) if d.expr.is_Symbol and d.expr not in d.variables]
        return found.subs({d: Symbol(f"d{d.expr}/d{d.variables}", real=True) for d in unknown}) if unknown else found
    except RecursionError:
        raise
    except Exception as error:  # the parser raises bare Exceptions, and whatever sympy raises on nonsense
        raise UnreadableError(f"not read as mathematics: {text:.80}") from error


def is_constant(value: Any) -> bool:
    """Return whether a sympy object is a number without free symbols."""
    from sympy import Expr
    from sympy.core.function import AppliedUndef

    return isinstance(value, Expr) and not value.free_symbols and not value.atoms(AppliedUndef)


def equal(gold: str, answer: str, relative: Fraction, absolute: Fraction | None = None) -> bool:
    """Return whether two expressions are equal.

    Constants are compared by value at high precision, with the tolerance only where one of them is written as a
    decimal. math-verify rounds to six decimals there, so that any tiny number would equal any other.

    Args:
        gold: spelled LaTeX.
        answer: spelled LaTeX.
        relative: relative tolerance for decimals.
        absolute: absolute tolerance that the set itself asks for.

    Returns:
        true if equal.
    """
    left, right = expression(gold), expression(answer)
    if is_constant(left) and is_constant(right):
        return _constants_equal(left, right, relative, absolute)
    if is_constant(left) != is_constant(right) and not (_has_set(left) or _has_set(right)):
        return _vanishes(left, right)
    return whole_equal(gold, answer)


def whole_equal(gold: str, answer: str) -> bool:
    """Return whether two expressions, equations or sets are equal as they stand.

    Equations are the same where their differences of sides are, up to a constant factor, or where math-verify finds the
    same solutions.
    """
    from sympy import Eq, simplify

    _, verify = _tools()
    left, right = expression(gold), expression(answer)
    if isinstance(left, Eq) and isinstance(right, Eq):
        ratio = simplify((left.lhs - left.rhs) / (right.lhs - right.rhs))
        if ratio.is_number and ratio.is_finite and not ratio.is_zero:
            return True
    return bool(verify(expression(gold), expression(answer), float_rounding=8, strict=True, timeout_seconds=None))


def _has_set(value: Any) -> bool:
    from sympy import Expr

    return not isinstance(value, Expr)


def _vanishes(left: Any, right: Any) -> bool:
    """Return whether an expression with symbols is that constant after all (`sin^2 x + cos^2 x` and 1)."""
    from sympy import simplify

    return bool(simplify(left - right) == 0)


DIGITS = 30


def _constants_equal(left: Any, right: Any, relative: Fraction, absolute: Fraction | None) -> bool:
    from sympy import Abs, Float, nan, oo, simplify, zoo

    left, right = left.doit(), right.doit()
    if left == right:
        return left not in (nan, zoo)
    if {left, right} & {oo, -oo, nan, zoo}:
        return False
    size, gap = Abs(left.evalf(DIGITS)), Abs((left - right).evalf(DIGITS))
    if absolute is not None and gap <= float(absolute):
        return True
    if left.has(Float) or right.has(Float) or relative > ROUNDING:
        return bool(gap <= size * float(relative))
    if bool(gap > size * Float(10) ** -20):
        return False
    return bool(simplify(left - right) == 0) or (left - right).equals(0) is True


ROUNDING = Fraction(1, 10**6)
"""Relative distance within which a decimal stands for an exact value: 0.333333 is 1/3, 0.3333 is not."""


def prepare() -> None:
    """Load the libraries and parse once, so that the first answer does not pay for it."""
    equal(r"\frac{x}{2}", "0.5x", ROUNDING)
