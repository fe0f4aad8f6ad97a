"""The diagnostics on a real small model and real data: the paper's ordering, and no bound violated."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranktuner.data.presets import open_data
from ranktuner.diagnostics.making import Scorer, noise_tables, noisy_rows
from ranktuner.diagnostics.noise import noise
from ranktuner.diagnostics.suspects import recovery
from ranktuner.diagnostics.table import TokenTable
from ranktuner.diagnostics.tightness import check_bounds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def table(smollm2: Path, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenTable:
    """100 GSM8K solutions, 10 of them with a sentence of Alpaca in the middle."""
    rows = open_data([f"gsm8k:{shared_data / 'gsm8k' / 'train.jsonl'}"])
    foreign = open_data([f"alpaca:{shared_data / 'alpaca' / 'random_9k.json'}"])
    scorer = Scorer.load(str(smollm2))
    folder = tmp_path_factory.mktemp("noise")
    planted = noisy_rows(rows, foreign, count=100, seeds=[0])  # type: ignore[arg-type]
    (made,) = noise_tables(scorer, folder, planted)
    return made


def test_the_papers_ordering(table: TokenTable) -> None:
    found = noise([table], ["sft", "dft", "ranktuner"])
    recall = {score["name"]: score["token_recall"]["mean"] for score in found.numbers["scores"]}
    hits = {score["name"]: score["sequence_hit"]["mean"] for score in found.numbers["scores"]}
    assert recall["entropy"] > recall["probability"] > recall["inverse-indicator"]
    assert recall["entropy"] > 0.4
    assert 0.2 < recall["probability"] < 0.55
    assert recall["inverse-indicator"] < 0.3
    assert recall["dft"] < 0.1, "dft's weight turns away from noise"
    assert min(hits["entropy"], hits["probability"]) >= 0.7
    assert hits["inverse-indicator"] <= 0.5


def test_no_bound_is_violated(table: TokenTable) -> None:
    for bound in check_bounds(table):
        assert bound["violations"] == 0, bound


def test_inserted_sentences_are_found(table: TokenTable) -> None:
    found = recovery("inserted sentence", table)
    assert found["by_trace"]["passage"] >= 0.6
    assert found["auc"] >= 0.85
