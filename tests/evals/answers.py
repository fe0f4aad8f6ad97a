"""Answers and the verdicts they must get: (gold, text of the model, verdict[, extras]). All of our own making.

Extras: `question`, `finish`, and the problem's meta (`tolerance`, `tolerance_absolute`, `unit`).
"""

from __future__ import annotations

from typing import Any

C, W, U, T = "correct", "wrong", "unparsed", "truncated"
PERCENT = {"question": "By what percent does the price rise?"}
CUT = {"finish": "length"}


def box(inside: str) -> str:
    return "We work it out step by step. So the result is $\\boxed{" + inside + "}$."


Pair = tuple[str, str, str] | tuple[str, str, str, dict[str, Any]]

NUMBERS: list[Pair] = [
    ("42", box("42"), C),
    ("42", box("43"), W),
    ("42", box("42.0"), C),
    ("42", box("042"), C),
    ("-7", box("-7"), C),
    ("-7", box("7"), W),
    ("-7", box("−7"), C),  # a Unicode minus
    ("1000", box("1,000"), C),
    ("1000", box(r"1{,}000"), C),
    ("58,500", box("58500"), C),
    ("58,500", box("58.5"), W),
    (r"11,\! 111,\! 111,\! 100", box("11111111100"), C),
    (r"11,\! 111,\! 111,\! 100", box("11111111101"), W),  # near, but integers are exact
    ("2000000", box(r"2 \times 10^6"), C),
    ("2000000", box(r"2 \cdot 10^{6}"), C),
    ("2000000", box("2e6"), C),
    ("2000000", box(r"2 \times 10^5"), W),
    (r"\frac{1}{2}", box("0.5"), C),
    (r"\frac{1}{2}", box("1/2"), C),
    (r"\frac{1}{2}", box(r"\frac12"), C),
    (r"\frac{1}{2}", box(r"\dfrac{2}{4}"), C),
    (r"\frac{1}{2}", box(".5"), C),
    (r"\frac{1}{2}", box("2"), W),
    (r"\frac{1}{3}", box("0.3333"), W),
    (r"\frac{1}{3}", box("0.333333"), C),
    (r"\frac{1}{3}", box("0.3333"), C, {"tolerance": 0.001}),
    (r"1\frac{4}{5}", box(r"\frac{9}{5}"), C),
    (r"1\frac{4}{5}", box("1.8"), C),
    (r"1\frac{4}{5}", box("1 4/5"), C),
    (r"1\frac{4}{5}", box(r"\frac{14}{5}"), W),
    ("0.0000672", box("0.000067"), W),  # six decimals would call them equal
    ("1e-8", box("0"), W),
    ("1e-8", box("3e-9"), W),
    ("1e-8", box(r"1.0 \times 10^{-8}"), C),
    ("2^{1009}", box(r"2 \cdot 2^{1008}"), C),
    ("2^{1009}", box(r"2^{1009}+1"), W),
    ("0.192", box("0.19201"), C, {"tolerance": 1e-4}),
    ("0.192", box("0.1925"), W, {"tolerance": 1e-4}),
    ("4.2", box("4.27"), C, {"tolerance_absolute": 0.1}),
    ("4.2", box("4.35"), W, {"tolerance_absolute": 0.1}),
    ("6720", box("8!/6"), C),
    ("120", box("5!"), C),
    ("56", box("5 6"), W),
    ("10000", box("10 000"), C),
    (r"\frac{1}{3}", box(r"0.\overline{3}"), C),
    (r"\frac{7}{6}", box(r"1.1\overline{6}"), C),
    (r"\frac{7}{6}", box(r"1.\overline{16}"), W),
    ("0", box("-0"), C),
    ("1538", box("1538.0001"), C),
    ("1538", box("1538.1"), W),
]

EXPRESSIONS: list[Pair] = [
    (r"3\sqrt{13}", box(r"\sqrt{117}"), C),
    (r"3\sqrt{13}", box(r"3 \sqrt 13"), W),  # TeX reads the root of 1 only
    (r"3\sqrt{13}", box("10.8167"), W),
    (r"3\sqrt{13}", box("10.8166538"), C),
    (r"\frac{\sqrt{3}}{3}", box(r"\frac{1}{\sqrt{3}}"), C),
    (r"18+2\pi", box(r"2(9+\pi)"), C),
    (r"18+2\pi", box("18+2π"), C),
    (r"18+2\pi", box(r"18 + 2\cdot 3.14"), W),
    ("x^3+3x-6", box("-6 + 3x + x^3"), C),
    ("x^3+3x-6", box("x^3+3x+6"), W),
    ("(a+5)(b+2)", box("(b+2)(a+5)"), C),
    ("(a+5)(b+2)", box("ab+2a+5b+10"), C),
    ("6m", box("6"), W),  # m is a variable
    ("6m", box("6 m"), C),
    ("R^2-r^2", box("0"), W),  # capitals are other letters
    ("R^2-r^2", box("(R-r)(R+r)"), C),
    (r"\cot x", box(r"\frac{\cos x}{\sin x}"), C),
    (r"\cot x", box(r"\tan x"), W),
    ("1", box(r"\sin^2 x + \cos^2 x"), C),
    ("6-5i", box("-5i+6"), C),
    ("6-5i", box("6+5i"), W),
    ("-8-8\\sqrt{3} i", box("(2-2\\sqrt{3}i)^2"), C),
    (r"\frac{e^{2 i t}}{2+2 i}", box(r"\frac{(1-i)e^{2it}}{4}"), C),
    (r"\binom{2n}{n}", box(r"\frac{(2n)!}{n!\,n!}"), C),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", box(r"\frac{E_1+2E_2}{3}"), C),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", box(r"\frac{2E_1+E_2}{3}"), W),
    (r"125-1.25 P", box(r"125-\frac{5}{4}P"), C),
    (r"e^{-t}", box(r"\exp(-t)"), C),
    (r"\log_2 8", box("3"), C),
    (r"\frac{n(n+1)}{2}", box(r"\sum_{k=1}^{n} k"), C),
]

EQUATIONS: list[Pair] = [
    ("x=5", box("5"), C),
    ("5", box("x = 5"), C),
    ("x=5", box("x=5"), C),
    ("x=5", box("y=5"), W),
    ("5", box("2+3=5"), C),
    ("5", box("2+3=6"), W),
    ("y = 2x + 3", box("2x+3"), C),
    ("y = 2x + 3", box("y=3+2x"), C),
    ("y = 2x + 3", box("x = 2y+3"), W),
    ("5x - 7y + 11z + 4 = 0", box("10x - 14y + 22z + 8 = 0"), C),
    ("5x - 7y + 11z + 4 = 0", box("5x - 7y + 11z = -4"), C),
    ("5x - 7y + 11z + 4 = 0", box("5x - 7y + 11z - 4 = 0"), W),
    ("MR=SRMC", box("SRMC = MR"), C),
    (r"\frac{dM}{dt}=2 k M^{6}", box(r"\frac{dM}{dt}=3 k M^{6}"), W),  # dM/dt is not 0
    (r"\frac{dM}{dt}=2 k M^{6}", box(r"2kM^6=\frac{dM}{dt}"), C),
    (r"m \frac{dv}{dt}+b v=f", box(r"\frac{dv}{dt}=\frac{f-bv}{m}"), C),
    (r"m \frac{dv}{dt}+b v=f", box(r"\frac{dv}{dt}=\frac{f+bv}{m}"), W),
    ("xy=6", box(r"2xy = 12"), C),
    ("xy=6", box(r"xy = 5"), W),
    ("MR=SRMC", box("MR = AC"), W),
    ("f(x)=2 x", box("f(x) = x + x"), C),
    (r"\sqrt{2}", box(r"\sqrt{2} \approx 1.41"), C),
    ("1.41", box(r"\sqrt{2} \approx 1.41"), C),
    ("42", box(r"41 \approx 42"), W),
]

SETS: list[Pair] = [
    ("1,-2", box("-2, 1"), C),
    ("1,-2", box("1"), W),
    ("1,-2", box("1, -2, 3"), W),
    ("1,-2", box(r"\{1, -2\}"), C),
    ("1,-2", box("(-2, 1)"), W),  # a tuple is ordered, whoever wrote it
    ("1,-2", box("(1, -2)"), C),
    ("1,-2", box("x = 1, x = -2"), C),
    ("1,-2", box(r"x = 1 \text{ or } x = -2"), C),
    (r"\{1\pm\sqrt{5},-2\}", box(r"\{-2, 1+\sqrt5, 1-\sqrt5\}"), C),
    (r"\{1\pm\sqrt{5},-2\}", box(r"\{-2, 1+\sqrt5\}"), W),
    (r"1 \pm \sqrt{19}", box(r"1+\sqrt{19}, 1-\sqrt{19}"), C),
    (r"1 \pm \sqrt{19}", box(r"1+\sqrt{19}"), W),
    ("16,3,1,1", box("1, 1, 3, 16"), C),
    ("16,3,1,1", box("16, 3, 3, 1"), W),  # as often as in the gold
    ("-2,-2", box("-2"), C),  # both are -2
    ("100, 200", box("100,200"), C),  # the gold says that the comma is no thousands comma
    ("100200", box("100,200"), C),
    ("3, 5, 7", box("3, 5 and 7"), C),
    ("3, 5, 7", "The primes are $\\boxed{3}$, $\\boxed{5}$ and $\\boxed{7}$.", C),
    ("(1,1), (3,2)", box("(3,2),(1,1)"), C),
    ("(1,1), (3,2)", box("(2,3),(1,1)"), W),
    (r"\{5\}", box("5"), C),
    (r"\emptyset", box(r"\emptyset"), C),
    (r"\emptyset", box("0"), W),
]

TUPLES_AND_INTERVALS: list[Pair] = [
    (r"\left( 3, \frac{\pi}{2} \right)", box(r"(3, \pi/2)"), C),
    (r"\left( 3, \frac{\pi}{2} \right)", box(r"(\pi/2, 3)"), W),
    (r"\left( 3, \frac{\pi}{2} \right)", box(r"3, \frac{\pi}{2}"), C),
    (r"\left( 3, \frac{\pi}{2} \right)", box(r"\{3, \frac{\pi}{2}\}"), W),
    ("(6,31,-1)", box("(6, 31, -1)"), C),
    ("(6,31,-1)", box("[6, 31, -1]"), C),  # three values are no interval
    ("(6,31,-1)", box(r"\langle 6, 31, -1 \rangle"), C),
    ("(6,31,-1)", box("(6, 31)"), W),
    ("(3,2)", box("(x,y) = (3,2)"), C),
    ("(3,4]", box("(3,4]"), C),
    ("(3,4]", box("[3,4]"), W),
    ("(3,4]", box("(3,4)"), W),
    ("(3,4]", box(r"3 < x \leq 4"), C),
    ("(3,4]", box(r"x \in (3, 4]"), C),
    ("(3,4]", box(r"3 \le x \le 4"), W),
    ("(3,4]", box("3, 4"), W),
    ("(3,4)", box("]3,4["), C),
    (r"x \in [-2,7]", box(r"\left[-2, 7\right]"), C),
    (r"k \geqslant 2", box(r"[2, \infty)"), C),
    (r"k \geqslant 2", box(r"2 \le k"), C),
    (r"k \geqslant 2", box("k > 2"), W),
    (r"(-\infty, 0]", box("(-∞, 0]"), C),
    (r"(-\infty, 0]", box(r"x \le 0"), C),
    (r"(-\infty, 2) \cup (3, \infty)", box(r"(3,\infty)\cup(-\infty,2)"), C),
    (r"(-\infty, 2) \cup (3, \infty)", box(r"x<2 \text{ or } x>3"), C),
    (r"(-\infty, 2) \cup (3, \infty)", box(r"\mathbb{R} \setminus [2,3]"), C),
    (r"(-\infty, 2) \cup (3, \infty)", box(r"(-\infty,2]\cup[3,\infty)"), W),
    (r"(-\infty, 0) \cup\{1\}", box(r"(-\infty, 0) \cup \{1\}"), C),
    (r"(-\infty, 0) \cup\{1\}", box(r"(-\infty, 0)"), W),
    ("(-\\sqrt{3}, \\sqrt{3})", box("(-1.7320508, 1.7320508)"), C),
]

MATRICES: list[Pair] = [
    (r"\begin{pmatrix} -2 \\ -14 \\ -7 \end{pmatrix}", box(r"\begin{bmatrix} -2 \\ -14 \\ -7 \end{bmatrix}"), C),
    (r"\begin{pmatrix} -2 \\ -14 \\ -7 \end{pmatrix}", box(r"\begin{pmatrix} -2 \\ -7 \\ -14 \end{pmatrix}"), W),
    (r"\begin{pmatrix} -2 \\ -14 \\ -7 \end{pmatrix}", box("(-2, -14, -7)"), C),
    (r"\begin{pmatrix} -2 \\ -14 \\ -7 \end{pmatrix}", box("-2"), W),
    (r"\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}", box(r"\begin{pmatrix} -\frac13 \\ \frac23 \end{pmatrix}"), C),
    (r"\begin{pmatrix} -1 & 0 \\ 0 & -1 \end{pmatrix}", box(r"\begin{pmatrix}-1&0\\0&-1\end{pmatrix}"), C),
    (r"\begin{pmatrix} -1 & 0 \\ 0 & -1 \end{pmatrix}", box(r"\left[\begin{array}{cc}-1&0\\0&-1\end{array}\right]"), C),
    (r"\begin{pmatrix} -1 & 0 \\ 0 & -1 \end{pmatrix}", box(r"\begin{pmatrix}-1&0&0&-1\end{pmatrix}"), W),
    (r"\begin{pmatrix} -1 & 0 \\ 0 & -1 \end{pmatrix}", box(r"\begin{pmatrix}0&-1\\-1&0\end{pmatrix}"), W),
]

UNITS: list[Pair] = [
    (r"864 \mbox{ inches}^2", box("864"), C),
    (r"864 \mbox{ inches}^2", box(r"864 \text{ square inches}"), C),
    (r"864 \mbox{ inches}^2", box(r"864 \text{ inches}"), W),
    (r"5.4 \text{ cents}", box(r"5.4"), C),
    (r"5.4 \text{ cents}", box(r"5.4 \text{ dollars}"), W),
    (r"90^\circ", box("90"), C),
    (r"90^\circ", box(r"90 \text{ degrees}"), C),
    (r"90^\circ", box("90°"), C),
    (r"90^\circ", box(r"90 \text{ radians}"), W),
    ("100", box("100 cm"), C),
    ("100", box(r"100 \mathrm{~km} / \mathrm{h}"), C),
    (r"\$36", box("36"), C),
    (r"\$36", box(r"\$36.00"), C),
    (r"\$36", box("36 dollars"), C),
    ("36", box(r"\$36"), C),
    ("45", box(r"45 \text{ minutes}"), C, {"unit": "minute"}),
    ("45", box(r"45 \text{ hours}"), W, {"unit": "minute"}),
    (r"\frac{270}7\text{ degrees}", box(r"\frac{270}{7}"), C),
    ("12", box("12 apples"), C),
    ("12", box(r"\text{12 ways}"), C),
    (r"2.6 \text{ m}", box(r"260 \text{ cm}"), W),  # no conversion: what was asked for was metres
]

PERCENTS: list[Pair] = [
    ("50", box(r"50\%"), W),
    ("50", box(r"50\%"), C, PERCENT),
    (r"\frac{1}{2}", box(r"50\%"), C),
    ("0.5", box("50 percent"), C),
    ("62.5%", box(r"62.5\%"), C),
    ("62.5%", box("62.5"), C),
    ("62.5%", box(r"\frac{5}{8}"), C),
    ("62.5%", box("0.0625"), W),
    (r"8 \%", box("8"), C),
    (r"8 \%", box(r"0.8\%"), W),
    ("4.2", box(r"4.2\%"), C, {"unit": "%"}),
    ("10", box(r"10\%"), C, PERCENT),
    ("10", box("0.1"), W, PERCENT),
    (r"\frac{100}{3}", box(r"33\frac13\%"), C, PERCENT),
]

BASES: list[Pair] = [
    ("2516_8", box("2516_8"), C),
    ("2516_8", box("2516_{8}"), C),
    ("2516_8", box("2516"), W),
    ("2516_8", box("2516_7"), W),
    ("2516_8", box("1358"), W),  # its value, but base eight was asked for
    ("4210_{5}", box(r"4210_{\text{five}}"), C),
    ("4210_{5}", box(r"4210 \text{ base } 5"), C),
    ("4210_{5}", box("4201_5"), W),
    ("42", box("42_{10}"), C),
    ("42", box("42_8"), W),
    ("1A_{16}", box("1a_{16}"), C),
]

BOXES: list[Pair] = [
    ("42", r"\boxed{41} wait, no \boxed{42}", C),
    ("41", r"\boxed{41} wait, no \boxed{42}", W),
    ("42", r"\boxed{41} or \boxed{42}", W),  # linked boxes are one answer of two values
    ("42", r"\boxed{42} or \boxed{42}", C),
    ("3,5", r"Both $\boxed{3}$ and $\boxed{5}$ work.", C),
    ("42", r"The answer is 41. \boxed{42}", C),
    ("42", r"\boxed{42} So the answer is 41.", C),  # a box goes before a phrase
    ("42", r"\boxed{\boxed{42}}", C),
    (r"\frac{3}{2}", r"This is $\boxed{1\frac12}$ or $\boxed{1.5}$.", C),  # one value, written twice
    ("113", r"\boxed{\textbf{(113) }}", C),
    ("73", r"\boxed{\textbf{(073)}}", C),
    ("42", r"I put the answer in \boxed{}: \boxed{42}. The box \boxed{} is used.", C),
    ("42", r"\fbox{42}", C),
    ("42", r"\boxed 42", W),  # TeX boxes the 4 alone
    (r"\frac{1}{2}", r"$$\boxed{\frac{1}{2}}$$", C),
    (r"\frac{1}{2}", r"\boxed{\text{The answer is } \frac{1}{2}}", C),
    ("42", r"\boxed{41, 42}", W),
    ("42", r"\boxed{42 \text{ or } 43}", W),
    ("42", r"\boxed{42 \text{ (or 43)}}", U),  # no unit has a number in it
    ("42", r"\boxed{42;43}", W),
    ("42", r"\boxed{42 \pm 1}", W),
    ("42", r"\boxed{\mathbf{42}}", C),
    ("42", r"\boxed{\$42}", C),
    ("42", r"\boxed{42.}", C),
    ("42", r"\boxed{ 42 \\ }", C),
]

TEXTS: list[Pair] = [
    ("42", "The answer is 42.", C),
    ("42", "The answer is 42 or 43 or 41", W),
    ("42", "The answer is 41, 42, or 43.", W),
    ("42", "**Answer:** 42", C),
    ("42", "#### 42", C),
    ("1234", "so 1000 + 234 = 1234\n#### 1,234", C),
    ("42", "The final answer is $42$. I hope it is correct.", C),
    ("42", "Answer: \\(x = 42\\)", C),
    (r"\sqrt{5}", r"The answer is \sqrt{5}.", C),
    (r"\frac{3}{7}", r"The answer is \frac{3}{7}", C),
    ("42", "So she has 42 apples.", C),
    ("42", "It is either 41 or 42.", W),
    ("42", "Therefore 6 * 7 = 42", C),
    ("7", "The answer is therefore 7 because 3 + 4 = 7 and nothing else.", C),
    ("12", "The answer to the question is 12 apples.", C),
    (r"\text{Evelyn}", box(r"\text{Evelyn}"), C),
    (r"\text{Evelyn}", box("Evelyn"), C),
    (r"\text{Evelyn}", box("evelyn."), C),
    (r"\text{Evelyn}", box("Carla"), W),
    (r"\text{east}", box("west"), W),
    (r"\text{(C)}", box("C"), C),
    (r"\text{(C)}", box("(C)"), C),
    (r"\text{(C)}", box(r"\textbf{(C) } 5"), C),
    (r"\text{(C)}", box("B"), W),
    (r"\text{(C)}", box("(C) + 1"), W),
    (r"\text{(C)}", box(r"\text{(C)} + 1"), W),
    (r"\text{(C)}", box("(B) or (C)"), W),
    (r"\text{even}", box(r"\text{odd}"), W),
    ("5", box(r"\text{no solution}"), W),
    ("5", "I do not know.", U),
    ("5", "", U),
    ("5", "   \n ", U),
    ("42", "The answer is (A).", W),
]

TRUNCATED: list[Pair] = [
    ("42", "First, we note that 6 times 7 is 42", T, CUT),  # a number on the way is no answer
    ("42", r"So we get \boxed{42}. Let me check this once", C, CUT),
    ("42", r"So we get \boxed{4", T, CUT),
    ("42", r"So we get \boxed{41}. But no, it is \boxed{42", W, CUT),
    ("42", "The answer is 42. Let me check", C, CUT),
    ("421", "The answer is 42", T, CUT),  # nobody knows how it would have gone on
    ("42", "", T, CUT),
]

HOSTILE: list[Pair] = [
    ("42", "a" * 1_000_000, U),
    ("42", "1" * 1_000_000, U),
    ("42", box("1" * 1_000_000), U),
    ("42", box("{" * 1000 + "42" + "}" * 1000), U),
    ("42", "\\boxed{" * 100_000 + "42", U),
    ("42", "{" * 1_000_000, U),
    ("42", "\\boxed{42}" + "x" * 1_000_000, C),
    ("42", "$" * 1_000_000, U),
    ("42", "answer is " * 100_000, U),
    ("42", "\\(" * 500_000, U),
    ("42", box("42" + r"\phantom{41}"), C),
    ("42", box("__import__('os').system('true')"), U),
    ("42", box("eval(42)"), W),
    ("42", box("\x00\x1b[31m42"), U),
    ("42", box("\\frac{1}{0}"), W),
    ("42", box("nan"), W),
    ("42", box(r"\infty"), W),
    ("42", box("42" * 2000), U),
    ("42", box("1e999999999"), W),
    ("42", box("(" * 1400 + "42" + ")" * 1400), U),
    ("42", "\ud800 \\boxed{42}", C),  # a lone surrogate, as a broken decoder leaves
]

WRITINGS: list[Pair] = [
    (r"\sqrt{2}", box("√2"), C),
    (r"\sqrt{x+1}", box("√(x+1)"), C),
    (r"10^{-3}", box("10⁻³"), C),
    (r"\frac{1}{2}", box(r"\nicefrac{1}{2}"), C),
    ("10", box(r"\dbinom52"), C),
    ("120", box("5!=120"), C),
    (r"\ln 2", box("ln(2)"), C),
    (r"\ln 2", box(r"\log_e 2"), C),
    (r"\ln 2", box(r"\log 2"), W),  # base ten where nothing is said
    (r"\arctan 2", box(r"\operatorname{arctan} 2"), C),
    (r"2\pi r", box("2 pi r"), C),
    (r"2\pi", box("2*pi"), C),
    ("e^2", box(r"\mathrm{e}^2"), C),
    (r"\frac{\sqrt{3}}{2}", box(r"\sin 60^\circ"), C),
    (r"\frac{\sqrt{3}}{2}", box(r"\sin 60"), W),
    ("60", box(r"180^\circ - 120^\circ = 60^\circ"), C),
    (r"\frac{180^\circ}{7}", box(r"\frac{180}{7}"), C),
    ("3x+2y=6", box(r"y=-\frac32x+3"), C),
    ("3x+2y=6", box("y=3-x"), W),
    ("3x+2y=6", box("x=2"), W),
    (r"x \geq 3", box("x>=3"), C),
    ("[0,1]", box(r"0\leq x\leq1"), C),
    ("[0,1]", box(r"\{x \mid 0 \le x \le 1\}"), C),
    ("[0,1]", box(r"\{x : 0 < x < 1\}"), W),
    (r"(-\infty,3)\cup(3,\infty)", box(r"x\neq 3"), C),
    (r"(-\infty,3)\cup(3,\infty)", box(r"x\neq 2"), W),
    (r"(-\infty,\infty)", box(r"\mathbb{R}"), C),
    (r"(0,\infty)", box(r"\mathbb{R}"), W),
    ("12 apples", box("12"), C),
    ("15 mph", box("15"), C),
    ("15 mph", box("16"), W),
    ("21", box(r"21^{\text{st}}"), C),
    ("21st", box("22nd"), W),
]

ANSWERS: list[Pair] = [
    *NUMBERS, *EXPRESSIONS, *EQUATIONS, *SETS, *TUPLES_AND_INTERVALS, *MATRICES, *UNITS, *PERCENTS, *BASES, *BOXES,
    *TEXTS, *TRUNCATED, *HOSTILE, *WRITINGS,
]  # fmt: skip

TOWERS = [
    r"\boxed{10^{10^{10^{10}}}}",
    r"\boxed{9^{9^{9^{9^9}}}}",
    r"\boxed{(10^9)!}",
    r"\boxed{2^{2^{2^{2^{2^{2}}}}} + 1}",
]
"""Answers that a computer algebra system would sit at for ever, or ask all memory for. None is right, none may hold."""
