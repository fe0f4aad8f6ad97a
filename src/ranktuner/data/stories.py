"""Short stories with numbers in them: an opening, what happens, a question; and the solution, written as it goes.

Each clause adds a sentence to the problem, a line to the solution for each step of arithmetic, and changes the number
that the story follows. A clause that does not fit the number (half of an odd one) says so, and another is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

NAMES = (
    "Ada", "Amir", "Bela", "Carla", "Chen", "Dana", "Elif", "Emil", "Fatou", "Goran", "Hana", "Ines", "Ivan", "Jonas",
    "Kofi", "Lena", "Luca", "Maya", "Mina", "Nils", "Noor", "Olga", "Omar", "Pablo", "Rosa", "Sven", "Tara", "Yusuf",
)  # fmt: skip
ITEMS = (
    ("apples", "baskets"), ("marbles", "jars"), ("stickers", "sheets"), ("books", "shelves"), ("pencils", "boxes"),
    ("cookies", "trays"), ("eggs", "cartons"), ("candles", "packets"), ("shells", "buckets"), ("stamps", "albums"),
    ("flowers", "vases"), ("beads", "strings"), ("postcards", "envelopes"), ("lemons", "crates"), ("buttons", "tins"),
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Unfit(Exception):  # noqa: N818  (no error: another clause is drawn)
    """This clause does not fit the number that the story has reached."""


@dataclass
class Story:
    """A problem while it is told."""

    uniform: Callable[[], float]
    """Numbers in [0, 1): the only source of chance, so that every Python draws the same stories."""
    largest: int
    """No number in the text is larger than this, except a wanted total; results stay within ten times it."""
    sentences: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    expression: str = ""
    """The whole calculation; halves and doubles by 2."""
    value: int = 0

    def __post_init__(self) -> None:
        self.who, self.friend, self.other = self.several(NAMES, 3)
        self.item, self.box = self.one(ITEMS)

    def one(self, options: Sequence[T]) -> T:
        """Draw one of the options."""
        return options[int(self.uniform() * len(options))]

    def several(self, options: Sequence[T], count: int) -> list[T]:
        """Draw different ones of the options, in chance's order."""
        left = list(options)
        return [left.pop(int(self.uniform() * len(left))) for _ in range(count)]

    def whole(self, low: int, high: int) -> int:
        """Draw a whole number from low to high; where there is none, the clause does not fit."""
        if high < low:
            raise Unfit
        return low + int(self.uniform() * (high - low + 1))

    def start(self, value: int) -> None:
        """Begin with a number that the text gives."""
        self.value, self.expression = value, str(value)

    def step(self, line: str, sign: str, number: int, *, left: bool = False) -> None:
        """Do one step of arithmetic and write it down; `left` puts the number in front.

        Args:
            line: the line of the solution, with `{}` where the equation goes.
            sign: one of + - * /
            number: the other operand.
        """
        a, b = (number, self.value) if left else (self.value, number)
        if sign == "/" and (b == 0 or a % b):
            raise Unfit
        result = {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[sign]
        if not 2 <= result <= 10 * self.largest:  # two at least: the nouns are plurals
            raise Unfit
        self.lines.append(line.format(f"{a} {sign} {b} = {result}"))
        inner = self.expression if self.expression.isdigit() else f"({self.expression})"
        self.expression = f"{number} {sign} {inner}" if left else f"{inner} {sign} {number}"
        self.value = result


def _has(s: Story) -> None:
    s.start(s.whole(3, s.largest))
    s.sentences.append(f"{s.who} has {s.value} {s.item}.")


def _fills(s: Story) -> None:
    boxes, each = s.whole(2, 9), s.whole(2, s.largest // 2)
    s.sentences.append(f"{s.who} fills {boxes} {s.box} with {each} {s.item} each.")
    s.start(boxes)
    s.step(f"The {s.box} hold {{}} {s.item}.", "*", each)


def _collects(s: Story) -> None:
    first, second = s.whole(2, s.largest), s.whole(2, s.largest)
    day = int(s.uniform() * 6)
    s.sentences.append(f"{s.who} collects {first} {s.item} on {DAYS[day]} and {second} on {DAYS[day + 1]}.")
    s.start(first)
    s.step(f"On the two days {s.who} collects {{}} {s.item}.", "+", second)


def _works(s: Story) -> None:
    each, hours = s.whole(2, s.largest // 2), s.whole(2, 9)
    s.sentences.append(f"{s.who} sorts {each} {s.item} an hour, works for {hours} hours and keeps them all.")
    s.start(each)
    s.step(f"In {hours} hours {s.who} gets {{}} {s.item}.", "*", hours)


def _times_as_many(s: Story) -> None:
    own, times = s.whole(2, s.largest // 2), s.whole(2, 5)
    many = "twice" if times == 2 else f"{times} times"
    s.sentences.append(
        f"{s.who} has {own} {s.item}, and {s.friend} has {many} as many. {s.friend} gives all of them to {s.who}."
    )
    s.start(own)
    s.step(f"{s.friend} has {{}} {s.item}.", "*", times)
    s.step(f"Together that makes {{}} {s.item}.", "+", own, left=True)


def _compared(s: Story) -> None:
    own, apart = s.whole(4, s.largest), s.whole(2, s.largest)
    word, sign = s.one((("more", "+"), ("fewer", "-")))
    s.sentences.append(
        f"{s.who} has {own} {s.item}. {s.friend} has {apart} {word} than {s.who} and brings all of them to {s.who}."
    )
    s.start(own)
    s.step(f"{s.friend} has {{}} {s.item}.", sign, apart)
    s.step(f"Together that makes {{}} {s.item}.", "+", own, left=True)


def _buys(s: Story) -> None:
    more = s.whole(2, s.largest)
    s.sentences.append(s.one(("Then {} buys {} more.", "Later {} buys another {}.")).format(s.who, more))
    s.step(f"After buying {more} more, {s.who} has {{}} {s.item}.", "+", more)


def _is_given(s: Story) -> None:
    more = s.whole(2, s.largest)
    s.sentences.append(
        s.one(("{} adds {} as a present.", "A neighbour of {} brings {} as a gift.")).format(s.other, more)
    )
    s.step(f"With the gift, {s.who} has {{}} {s.item}.", "+", more)


def _gives(s: Story) -> None:
    away = s.whole(2, min(s.largest, s.value - 2))
    s.sentences.append(
        s.one(("{} gives {} of them to {}.", "Of these, {} hands {} to {}.")).format(s.who, away, s.other)
    )
    s.step(f"After giving {away} away, {s.who} has {{}} {s.item}.", "-", away)


def _loses(s: Story) -> None:
    away = s.whole(2, min(s.largest, s.value - 2))
    s.sentences.append(
        s.one(("On the way home {} get lost.", "Unluckily, {} are damaged and thrown away.")).format(away)
    )
    s.step(f"Without the {away}, there are {{}} {s.item}.", "-", away)


def _halves(s: Story) -> None:
    s.sentences.append(s.one(("{} sells half of what is there.", "Then {} donates half of all.")).format(s.who))
    s.step(f"Half of them is {{}} {s.item}.", "/", 2)


def _doubles(s: Story) -> None:
    s.sentences.append(s.one(("Then {} doubles the number.", "An aunt of {} doubles it.")).format(s.who))
    s.step(f"Doubled, that is {{}} {s.item}.", "*", 2)


def _now(s: Story) -> None:
    s.sentences.append(s.one(("How many {} does {} have now?", "How many {} are left with {}?")).format(s.item, s.who))


def _earns(s: Story) -> None:
    price = s.whole(2, 9)
    s.sentences.append(f"Each one is sold for {price} coins. How many coins does {s.who} get?")
    s.step("The sale brings {} coins.", "*", price)


def _shares(s: Story) -> None:
    friends = s.one([k for k in range(2, 10) if s.value % k == 0 and 2 * k <= s.value] or [0])
    if not friends:
        raise Unfit
    s.sentences.append(f"{s.who} shares them equally among {friends} friends. How many {s.item} does each friend get?")
    s.step(f"Each friend gets {{}} {s.item}.", "/", friends)


def _leads(s: Story) -> None:
    less = s.whole(2, min(s.largest, s.value - 2))
    name = next(name for name in NAMES if name not in (s.who, s.friend, s.other))
    s.sentences.append(f"{name} has {less} {s.item}. How many more {s.item} does {s.who} have than {name}?")
    s.step(f"{s.who} has {{}} {s.item} more than {name}.", "-", less)


def _misses(s: Story) -> None:
    goal = s.value + s.whole(2, s.largest)
    s.sentences.append(f"{s.who} wants {goal} {s.item} in all. How many are still missing?")
    s.step(f"Still missing are {{}} {s.item}.", "-", goal, left=True)


Clause = Callable[[Story], None]
OPENINGS: dict[Clause, int] = {_has: 0, _fills: 1, _collects: 1, _works: 1, _times_as_many: 2, _compared: 2}
"""Clause -> how many steps of arithmetic it needs."""
CHANGES: tuple[Clause, ...] = (_buys, _is_given, _gives, _loses, _halves, _doubles)
QUESTIONS: dict[Clause, int] = {_now: 0, _earns: 1, _shares: 1, _leads: 1, _misses: 1}


def tell(uniform: Callable[[], float], steps: int, largest: int) -> Story:
    """Return a story that needs so many steps; clauses are drawn until they fit together."""
    while True:
        story = Story(uniform, largest)
        opening, question = story.one(list(OPENINGS)), story.one(list(QUESTIONS))
        between = steps - OPENINGS[opening] - QUESTIONS[question]
        if not 0 <= between <= len(CHANGES):
            continue
        try:
            for clause in (opening, *story.several(CHANGES, between), question):
                clause(story)
        except Unfit:
            continue
        return story
