"""Sentences about other things: what the noise diagnostic plants where no instruction data is at hand."""

from __future__ import annotations

import random

from ranktuner.errors import InputError

OPENINGS = (
    "In early spring", "After the long winter", "According to the local paper", "On most evenings",
    "To everyone's surprise", "During the festival", "For many years", "Behind the old station",
    "As the guide explained", "Despite the heavy rain", "Towards the end of summer", "In the northern valley",
    "Before the railway came", "By common agreement",
)  # fmt: skip
SUBJECTS = (
    "the harbour committee", "a flock of cranes", "the village orchestra", "an elderly botanist",
    "the museum's new director", "a retired lighthouse keeper", "the city council", "a group of painters",
    "the ferry company", "an amateur astronomer", "the cathedral choir", "a famous chess player",
    "the mountain rescue team", "a travelling theatre",
)  # fmt: skip
VERBS = (
    "postponed the opening of", "wrote a long letter about", "crossed the bay in search of", "quietly restored",
    "argued for the protection of", "photographed", "told strange legends about", "voted against the sale of",
    "composed a melody in praise of", "rediscovered", "spent a fortune on", "drew careful maps of",
)  # fmt: skip
OBJECTS = (
    "the abandoned vineyard", "a forgotten manuscript", "the frozen waterfall", "several Roman mosaics",
    "the botanical garden", "a wooden bridge", "the island's wild horses", "an enormous bronze bell",
    "the marshes along the river", "a collection of antique violins", "the ruined monastery",
    "a rare species of orchid",
)  # fmt: skip


def sentences(count: int, seed: int = 0) -> list[str]:
    """Return different English sentences without numbers that no arithmetic problem leads to; the seed draws them."""
    parts = (OPENINGS, SUBJECTS, VERBS, OBJECTS)
    limit = len(OPENINGS) * len(SUBJECTS) * len(VERBS) * len(OBJECTS) // 2
    if not 0 < count <= limit:
        raise InputError(f"{count} foreign sentences: expected from 1 to {limit:,}")
    chance = random.Random(f"foreign {seed}")
    found: dict[str, None] = {}
    while len(found) < count:
        a, b, c, d = (part[int(chance.random() * len(part))] for part in parts)
        found[f"{a}, {b} {c} {d}."] = None
    return list(found)
