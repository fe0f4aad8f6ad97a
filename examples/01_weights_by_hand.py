"""Four tokens, their signals, and the weights that follow: the whole method with no model at all.

    python examples/01_weights_by_hand.py

The answer to "What is 2+3?" in the training data reads "The answer is, essentially, 6". The wrong digit `6` and the
filler `essentially` have the same probability, 0.02, so plain likelihood and DFT cannot tell them apart. The entropy of
their contexts can: where the model was sure (`6`), a label of rank 2 is far below its expectation and is pushed; where
the context is open (`essentially`), rank 15 is about what was to be expected.
"""

from ranktuner import bounds, method
from ranktuner.by_hand import signals_by_hand

TOKENS = {
    # text: probability, entropy in bits, rank, largest probability
    "6, sure context": (0.02, 0.30, 2, 0.96),
    "essentially, open context": (0.02, 6.00, 15, 0.06),
    "inserted noise word": (0.0004, 5.00, 300, 0.20),
    "easy token": (0.97, 0.22, 1, 0.97),
}

ranktuner, with_prior, dft = method("ranktuner"), method("ranktuner(prior=prob)"), method("dft")

print(f"{'token':<26}{'p':>8}{'H bits':>8}{'R':>5}{'s(H)':>7}{'K':>7}{'scale':>7}{'p*S':>8}{'DFT':>8}")
for text, (p, entropy_bits, rank, p_max) in TOKENS.items():
    s = signals_by_hand(p, entropy_bits, rank, p_max)
    bound = bounds.rank_bound(s.entropy_bits, s.p_max)
    k = bounds.elasticity(bounds.xi(s.rank, bound))
    scale, weight, plain = (float(m.weights(s)) for m in (ranktuner, with_prior, dft))
    print(
        f"{text:<26}{p:>8}{entropy_bits:>8.2f}{rank:>5}{float(bound):>7.2f}{float(k):>7.3f}"
        f"{scale:>7.2f}{weight:>8.4f}{plain:>8.4f}"
    )
