"""Drawing the next token with noise that belongs to the sample: a function of (seed, step, token), nothing else.

The largest of `log p + Gumbel noise` is a draw from p. The noise comes from a counter-based hash, so a row's draw does
not depend on which rows stand beside it, on their order, or on the device; rounding matters only where the two largest
sums are nearly tied.

Noise for a whole vocabulary at each step would cost as much as the model. It is drawn for the likeliest tokens and for
"any other" as one more choice; only where that one wins are the others drawn among themselves, with fresh noise. The
distribution is exactly p.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

HEAD = 64
"""How many of the likeliest tokens get their own noise."""

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed integer: the step of splitmix64
_MIX1 = -4658895280553007687
_MIX2 = -7723592293110705685


def _mixed(z: Tensor) -> Tensor:
    """Return splitmix64's finaliser of int64 numbers. The masks make the arithmetic shifts logical ones."""
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * _MIX1
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * _MIX2
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def gumbel(seed_B: Tensor, step_B: Tensor, token_BK: Tensor, stream: int = 0) -> Tensor:
    """Return Gumbel noise for tokens of rows, the same for the same (seed, step, token, stream).

    `-ln(-ln(1 - u))`, u uniform on 2^32 midpoints of (0, 1): near u = 0, where the winners are, floats are dense.
    """
    key_B = _mixed(_mixed(seed_B * _GOLDEN + stream) + (step_B + 1) * _GOLDEN)
    bits_BK = (_mixed(key_B[:, None] + (token_BK + 1) * _GOLDEN) >> 32) & 0xFFFFFFFF
    u_BK = ((bits_BK.float() + 0.5) * 2.0**-32).clamp(max=1 - 2.0**-24)
    return -(-(-u_BK).log1p()).log()


def draw(logits_BV: Tensor, seed_B: Tensor, step_B: Tensor, temperature: float, top_p: float = 1.0) -> Tensor:
    """Return the next token of each row.

    Args:
        logits_BV: the model's, any float dtype.
        seed_B: each sample's own seed, int64.
        step_B: how many tokens the sample already has, int64.
        temperature: 0 takes the likeliest.
        top_p: draw from the smallest set of likeliest tokens with at least this probability.
    """
    if temperature == 0:
        return logits_BV.argmax(-1)
    logp_BV = (logits_BV.float() / temperature).log_softmax(-1)
    if top_p < 1:
        return _draw_nucleus(logp_BV, seed_B, step_B, top_p, HEAD)
    logp_BK, token_BK = logp_BV.topk(min(HEAD, logp_BV.shape[-1]))
    best_B, at_B = (logp_BK + gumbel(seed_B, step_B, token_BK)).max(-1)
    token_B = token_BK.gather(-1, at_B[:, None])[:, 0]
    rest_B = (-logp_BK.exp().sum(-1).clamp(max=1)).log1p()
    rest_B = rest_B + gumbel(seed_B, step_B, token_BK.new_full((len(token_B), 1), logp_BV.shape[-1]))[:, 0]
    tail = (rest_B > best_B).nonzero()[:, 0]
    if len(tail):
        token_B[tail] = _draw_outside(logp_BV[tail], token_BK[tail], seed_B[tail], step_B[tail])
    return token_B


def _draw_outside(logp_BV: Tensor, head_BK: Tensor, seed_B: Tensor, step_B: Tensor) -> Tensor:
    """Draw among the tokens that are not in the head."""
    logp_BV = logp_BV.scatter(-1, head_BK, float("-inf"))
    token_V = head_BK.new_ones(logp_BV.shape[-1]).cumsum(0) - 1
    return (logp_BV + gumbel(seed_B, step_B, token_V.expand_as(logp_BV), stream=1)).argmax(-1)


def _draw_nucleus(logp_BV: Tensor, seed_B: Tensor, step_B: Tensor, top_p: float, head: int) -> Tensor:
    """Draw from the likeliest tokens up to the share top_p, looking further down only in the rows that need it."""
    vocabulary = logp_BV.shape[-1]
    logp_BK, token_BK = logp_BV.topk(min(head, vocabulary))
    share_BK = logp_BK.exp().cumsum(-1)
    # A token is in while the share before it is below top_p, so the first is always in.
    inside_BK = (share_BK - logp_BK.exp() < top_p).index_fill(-1, token_BK.new_zeros(1), True)
    scores_BK = (logp_BK + gumbel(seed_B, step_B, token_BK)).masked_fill(~inside_BK, float("-inf"))
    token_B = token_BK.gather(-1, scores_BK.argmax(-1, keepdim=True))[:, 0]
    if head < vocabulary:
        open_ = (share_BK[:, -1] < top_p).nonzero()[:, 0]
        if len(open_):
            token_B[open_] = _draw_nucleus(logp_BV[open_], seed_B[open_], step_B[open_], top_p, head * 16)
    return token_B
