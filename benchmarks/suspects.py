"""How much planted noise `inspect data` finds, over token tables that noise was planted in; stores numbers, no text.

ranktuner diagnose noise --model M --data gsm8k:train.jsonl --noise alpaca:alpaca.json -o noise
ranktuner inspect data --plant --model M --data gsm8k:train.jsonl --noise alpaca:alpaca.json -o planted
python benchmarks/suspects.py noise/noise-*.parquet planted/planted-*.parquet
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ranktuner.diagnostics.summaries import provenance_of
from ranktuner.diagnostics.suspects import recovery
from ranktuner.diagnostics.table import read_table
from ranktuner.findings import Finding

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+", help="token tables with planted noise")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "suspects.json")
    args = parser.parse_args()
    tables = {path.stem: read_table(path) for path in args.tables}
    found = [recovery(name, table) for name, table in tables.items()]
    for one in found:
        trace = ", ".join(f"{name} {share:.0%}" for name, share in one["by_trace"].items())
        print(
            f"{one['kind']}: {one['row_recall']:.0%} of {one['planted']} planted rows ({trace}), AUC {one['auc']:.3f}"
        )
    Finding(
        kind="benchmark",
        title="Planted noise found by inspect data",
        n=sum(one["rows"] for one in found),
        numbers={"tables": found},
        protocol={"unit": "rows", "found": "among as many top rows as were planted", "spans": "in tokens"},
        provenance=provenance_of(tables),
    ).save(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
