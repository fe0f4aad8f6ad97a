"""Rows of GSM8K in the shape of the generated problems: python gsm8k_rows.py gsm8k/train.jsonl 2048 > gsm8k-rows.jsonl.

The calculator's marks go, and the answer after `####` is boxed, so that both halves of the training data end alike.
"""

import json
import sys
from pathlib import Path

from ranktuner.data.presets import without_calculator_marks


def main() -> None:
    """Print the first rows."""
    file, count = Path(sys.argv[1]), int(sys.argv[2])
    for line in file.read_text(encoding="utf-8").splitlines()[:count]:
        row = json.loads(line)
        text, _, answer = without_calculator_marks(row["answer"]).rpartition("####")
        solution = f"{text.strip()}\nThe answer is \\boxed{{{answer.strip().replace(',', '')}}}."
        print(json.dumps({"problem": row["question"], "solution": solution}))


if __name__ == "__main__":
    main()
