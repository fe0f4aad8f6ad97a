"""From a spec to a Method: `method("ranktuner(prior=prob)")`, a user's own by `module:attribute`, plug-ins.

Three sources, looked at in this order: the table of `methods.py`, installed packages that offer entry points in the
group `ranktuner.methods`, and, for a name with a colon, an import path.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ranktuner import spec
from ranktuner.errors import InputError, NonFiniteError, nearest
from ranktuner.lagged import Lagged
from ranktuner.methods import TABLE, Card, WeightFunction
from ranktuner.signals import Needs, RowTerms, Signals

GROUP = "ranktuner.methods"
_CARD = "ranktuner_card"


@dataclass(frozen=True)
class Method:
    """A token weighting with its parameters; pure but for `context`."""

    name: str
    parameters: dict[str, Any]
    function: WeightFunction
    card: Card
    trusted: bool
    """Ours: its weights are right by test. Others are checked each time."""
    context: Lagged | None = field(default=None)
    """State over optimiser steps, for `talr(tau=lagged)`; else None."""

    def __str__(self) -> str:
        return spec.render(self.name, self.parameters, self.function)

    @property
    def needs(self) -> frozenset[str]:
        """Extra signals it reads, by the names of `Needs`."""
        return frozenset(self.card.needs(self.parameters))

    @property
    def scope(self) -> str:
        """`token`: a token's weight depends on that token alone; `batch`: on the others of the micro-batch too."""
        return "batch" if self.card.batch(self.parameters) else "token"

    @property
    def paper(self) -> str:
        """Where it comes from."""
        return self.card.paper

    def terms(self, signals: Signals) -> RowTerms:
        """Return the loss terms of every token, without gradient."""
        self._check_needs(signals)
        extra = {} if self.context is None else {"_context": self.context}
        with torch.no_grad():
            answer = self.function(signals.detach(), **self.parameters, **extra)
        terms = answer if isinstance(answer, RowTerms) else RowTerms(answer)
        return terms if self.trusted else self._checked(terms, signals)

    def weights(self, signals: Signals) -> Tensor:
        """Return the weight of every token's nll."""
        return self.terms(signals).w_nll

    def _check_needs(self, signals: Signals) -> None:
        needs = Needs.parse(self.needs)
        absent = [
            name
            for name, wanted, there in (
                (f"topk_entropy:{needs.topk}", needs.topk, signals.topk_entropy),
                ("sum_p2", needs.sum_p2, signals.sum_p2),
                ("mass_above", needs.mass_above, signals.mass_above),
                ("expected_rank", needs.expected_rank, signals.expected_rank),
            )
            if wanted and there is None
        ]
        if absent:
            raise InputError(f"{self} needs the signal {absent[0]}, which was not taken: pass needs={absent}")

    def _checked(self, terms: RowTerms, signals: Signals) -> RowTerms:
        """A user's terms in the signals' own dtype: a mask of bools would turn the data's weight of 0.5 into 1."""
        weight = self._column("weight", terms.w_nll, signals, floor=0.0)
        if self.scope == "token" and len(signals) > 1:
            self._check_scope(weight, signals)
        rest = (("entropy weight", terms.w_entropy), ("reported loss", terms.reported))
        return RowTerms(weight, *(None if x is None else self._column(what, x, signals) for what, x in rest))

    def _check_scope(self, weight: Tensor, signals: Signals) -> None:
        """Half of the tokens once more: the kernels call a token-scope method chunk by chunk."""
        half = len(signals) // 2
        with torch.no_grad():
            answer = self.function(signals.detach().map(lambda t: t[:half]), **self.parameters)
        again = (answer.w_nll if isinstance(answer, RowTerms) else answer).to(weight.dtype)
        other = ~torch.isclose(again, weight[:half], rtol=1e-3, atol=1e-6)
        if bool(other.any()):
            i = int(other.nonzero()[0])
            raise InputError(
                f"{self} gives token {i} the weight {float(weight[i]):.4g} among {len(signals)} tokens and "
                f"{float(again[i]):.4g} among the first {half}: a weight that depends on other tokens (or on chance) "
                "must say so, with @ranktuner.weighting(scope='batch')"
            )

    def _column(self, what: str, w: Any, signals: Signals, floor: float = -math.inf) -> Tensor:
        if not isinstance(w, Tensor) or w.shape != signals.nll.shape:
            got = f"shape {tuple(w.shape)}" if isinstance(w, Tensor) else type(w).__name__
            raise InputError(
                f"{self} gave {got}; a tensor of one {what} for each of {len(signals)} tokens was expected"
            )
        column: Tensor = w.to(signals.nll.dtype)
        bad = ~torch.isfinite(column) | (column < floor)
        if bool(bad.any()):
            i = int(bad.nonzero()[0])
            token = (
                f"p={float(signals.p[i]):.3g}, R={int(signals.rank[i])}, H={float(signals.entropy_bits[i]):.3g} bits"
            )
            kind = NonFiniteError if not bool(torch.isfinite(column[i])) else InputError
            expected = "a finite number >= 0" if floor == 0 else "a finite number"
            raise kind(f"{self} gave the {what} {float(column[i])} for token {i} ({token}); {expected} was expected")
        return column


def method(text: str | Method, **parameters: Any) -> Method:
    """Return the Method of a spec such as `ranktuner(prior=prob, k=0.5)`, `eaft` or `my_package.mine:weight(a=2)`.

    Args:
        text: the spec; a Method is returned as it is.
        parameters: more parameters, as values.
    """
    if isinstance(text, Method):
        return text
    if not isinstance(text, str):
        raise InputError(
            f"method is {text!r}; a Method or a spec such as 'ranktuner(prior=prob)' was expected: a function of your "
            "own goes by import path, 'my_package.mine:weight'"
        )
    name, given = spec.parse(text)
    both = set(given) & set(parameters)
    if both:
        raise InputError(f"{name}: {sorted(both)[0]!r} is given in the text and as an argument; give it once")
    function, card, trusted = _find(name)
    resolved = spec.resolve(name, function, {**given, **parameters})
    Needs.parse(card.needs(resolved))
    context = Lagged() if name == "talr" and resolved["tau"] == "lagged" else None
    return Method(name, resolved, function, card, trusted, context)


def names() -> list[str]:
    """Return the names of all methods: ours in their order, then those of plug-ins."""
    return [*TABLE, *(n for n in _plugins() if n not in TABLE)]


def weighting(
    *,
    needs: list[str] | None = None,
    scope: Literal["token", "batch"] = "token",
    formula: str = "-",
    reads: str = "-",
    paper: str = "-",
    when: str = "-",
) -> Callable[[WeightFunction], WeightFunction]:
    """Decorate a user's own weight function: what it needs, and what `ranktuner methods` says of it.

    Args:
        needs: extra signals, such as `sum_p2`.
        scope: `batch` where a token's weight depends on the others of its micro-batch.
        formula: the weight.
        reads: the signals it reads.
        paper: where it comes from.
        when: when to use it.
    """
    wanted = list(needs or [])
    Needs.parse(wanted)
    if scope not in ("token", "batch"):
        raise InputError(f"scope is {scope!r}; {nearest(scope, ('token', 'batch'))}")

    def mark(function: WeightFunction) -> WeightFunction:
        card = Card(
            formula,
            reads,
            paper,
            when,
            confirmed="its author",
            needs=lambda parameters: wanted,
            batch=lambda parameters: scope == "batch",
        )
        setattr(function, _CARD, card)
        return function

    return mark


def _find(name: str) -> tuple[WeightFunction, Card, bool]:
    if name in TABLE:
        return *TABLE[name], True
    plugins = _plugins()
    if name in plugins:
        function = _load(plugins[name])
    elif ":" in name:
        function = _import(name)
    else:
        raise InputError(f"unknown method {name!r}; {nearest(name, names())}")
    if not callable(function):
        raise InputError(
            f"{name} is {type(function).__name__}; a function of Signals that returns weights was expected"
        )
    return function, getattr(function, _CARD, Card("-", "-", "-", "-", confirmed="its author")), False


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever another package does when it is imported
        owner = point.dist.name if point.dist else "an installed package"
        raise InputError(
            f"method {point.name!r} of {owner} ({point.value}) cannot be loaded: {type(error).__name__}: {error}; mend "
            "or uninstall that package"
        ) from error


def _import(path: str) -> Any:
    module_name, _, attribute = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # a console script does not have the working folder on its path
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except Exception as error:  # whatever a user's module does when it is imported
        raise InputError(
            f"method {path!r}: module {module_name!r} cannot be imported: {type(error).__name__}: {error}; is it "
            "installed, or in this folder?"
        ) from error
    if not hasattr(module, attribute):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise InputError(f"method {path!r}: {module_name!r} has no {attribute!r}; {nearest(attribute, public)}")
    return getattr(module, attribute)
