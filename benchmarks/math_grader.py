"""How long 2,000 ordinary mathematical answers take to grade, and what math-verify's defaults say of our list.

An ordinary answer is a page of reasoning that ends in a boxed gold of a public set, written as models write it: half of
them right in other spellings, half wrong by a digit (golds without digits stay right). The limit is 60 s on two cores.

    python benchmarks/math_grader.py --data DIR                # stores benchmarks/results/math_grader.json
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from pathlib import Path

from ranktuner.evals.graders import grader
from ranktuner.evals.records import Problem, Sample
from ranktuner.evals.tasks import task
from ranktuner.findings import Finding, provenance

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "evals"))

from answers import ANSWERS  # noqa: E402  (the list is that of the tests)
from items import item  # noqa: E402

SETS = ("math500", "minerva", "olympiadbench", "aime24", "amc23", "gsm8k")
REASONING = "Let $x$ be what is asked for. From $2x + 3 = 7$ we get $x = 2$, so that $\\frac{x}{2} = 1$. " * 30
OTHER_SPELLINGS = (
    lambda gold: rf"so the answer is \[\boxed{{{gold}}}\]",
    lambda gold: rf"Therefore, $\boxed{{{gold.replace(chr(92) + 'frac', chr(92) + 'dfrac')}}}$.",
    lambda gold: rf"**Answer:** $\boxed{{ {gold} }}$",
    lambda gold: rf"The final answer is ${gold}$. I hope it is correct.",
)


def ordinary(data: Path, count: int) -> list[tuple[Problem, Sample]]:
    """Return `count` answers over all problems of the sets, every second one wrong by its first digit, if any."""
    problems = [p for name in SETS for p in task(name).load(data, check=False).problems]
    step = len(problems) / count
    items = []
    for i in range(count):
        problem = problems[int(i * step)]
        gold = str(problem.gold)
        if i % 2:
            gold = re.sub(r"[1-9]", lambda m: str(int(m.group()) % 9 + 1), gold, count=1)
        text = REASONING + OTHER_SPELLINGS[i % len(OTHER_SPELLINGS)](gold)
        items.append((problem, item("", text)[1]))
    return items


def peer_verdicts() -> Counter[str]:
    """Return how math-verify with its defaults fares on our list (short answers that were not cut)."""
    from math_verify import parse, verify

    found: Counter[str] = Counter()
    for gold, text, verdict, *extras in ANSWERS:
        if extras or len(text) > 2000:
            continue
        right = verify(parse(f"${gold}$"), parse(text))
        wanted = verdict == "correct"
        found["agrees" if right == wanted else "accepts a wrong answer" if right else "rejects a right answer"] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the public sets")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    items = ordinary(options.data, options.count)
    start = time.monotonic()
    verdicts = Counter(grade.verdict for grade in grader("math")(items, workers=options.workers))
    seconds = time.monotonic() - start
    numbers = {
        "seconds": round(seconds, 2),
        "answers_per_second": round(options.count / seconds, 1),
        "verdicts": dict(verdicts),
        "our_list": len(ANSWERS),
        "math_verify_defaults_on_our_list": dict(peer_verdicts()),
    }
    finding = Finding(
        kind="benchmark",
        title="Grading ordinary mathematical answers",
        n=options.count,
        numbers=numbers,
        protocol={"unit": "answers", "workers": options.workers, "sets": list(SETS), "characters": len(REASONING)},
        provenance=provenance(),
    )
    print(numbers)
    print("stored", finding.save(ROOT / "benchmarks" / "results" / "math_grader.json").relative_to(ROOT))


if __name__ == "__main__":
    main()
