"""Grading Python code: the candidate answers calls in a sandbox, and somebody else decides what the answers are worth.

What a problem of a code task must hold (JSON values only):

`Problem.question`  the prompt: for HumanEval the code up to and with the docstring, which the answer may continue.
`Problem.meta`
    "entry_point"   the function's name (required)
    "prompt"        the code that stands before a continuation; `question` where absent. A chat task whose question is
                    prose sets it to the imports and helpers that the answer may take for granted, or to "".
    "reference"     a right solution: a continuation of the prompt, or a whole program (optional; required where the gold
                    has inputs without outputs). It is also what "the gold is accepted against itself" runs.
    "contract"      assertions on the arguments that stand between prompt and reference (optional, HumanEval+)
    "oracle"        the name of a rule that replaces equality, see `code_values.ORACLES` (optional)
`Problem.gold`      one of
    {"tests": program}                      a program that defines `check(candidate)`, as HumanEval's
    {"inputs": [[arg, ...], ...], "outputs": [value, ...], "atol": 0.0}
    {"inputs": [[arg, ...], ...], "atol": 0.0, "base": 7}      the outputs are the reference's; the first `base` inputs
                                            are told apart from the rest in `Grade.why`

`ranktuner.evals.humaneval` makes such problems from rows of the two sets:

    read_humaneval(path) -> list[Problem]         HumanEval.jsonl[.gz], or HumanEvalPlus-OriginFmt.jsonl[.gz]
    read_humaneval_plus(path) -> list[Problem]    HumanEvalPlus[-Mini].jsonl[.gz]
    answer_of_reference(problem) -> str           the text that must be graded correct

A user's own code task is a JSONL with these names as columns: `question`, `entry_point`, and `tests`, or `inputs` with
`outputs` or `reference`; `user_problem(row, id)` reads one row.

    grade(items, *, workers=2, seconds=None, allow_unsafe=False) -> Iterator[Grade]      in the order of the items
"""
