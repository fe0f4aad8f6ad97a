"""The ten tasks: the paper's nine and GSM8K. One table; everything a task is stands in its row."""

from __future__ import annotations

from ranktuner.evals.tasks import rows
from ranktuner.evals.tasks.task import Decoding, Prompt, Reader, Source, Task

MATH_ASK = "Please reason step by step, and put your final answer within \\boxed{}."
MATH = Prompt(
    chat="{question}\n" + MATH_ASK,
    plain="Question: {question}\n" + MATH_ASK + "\nAnswer: ",
    stop=("\nQuestion:",),
)

CHOICE_ASK = "Please reason step by step, and put the letter of the right choice within \\boxed{}."
CHOICE = Prompt(
    chat="{question}\n\n{choices}\n\n" + CHOICE_ASK,
    plain="Question: {question}\n\n{choices}\n\n" + CHOICE_ASK + "\nAnswer: ",
    stop=("\nQuestion:",),
)

CODE = Prompt(
    chat="Complete the Python function below. Answer with the whole function, with its imports, in one "
    "```python block and nothing after it.\n\n```python\n{question}\n```",
    plain="{question}",
    stop=("\nclass ", "\ndef ", "\n#", "\nif __name__", "\nprint(", "\n```", "\nassert "),
)

PAPER = "n = 16 with temperature 1.0 and 4,096 new tokens: the paper's protocol; prompt: the Qwen2.5-Math protocol."
PAPER_CHOICE = "Temperature 0.8 and 3,072 new tokens: the paper's protocol for multiple choice; prompt: ours."
PAPER_CODE = "pass@1 and pass@10: the paper's; it names no other decoding for code, so its general one; prompt: ours."


def _math(
    name: str, title: str, read: Reader, expected: int, source: Source, *, grader: str = "math", note: str = PAPER
) -> Task:
    decoding = Decoding(temperature=1.0, top_p=1.0, max_new_tokens=4096)
    return Task(name, title, grader, MATH, decoding, 16, (1, 2, 4, 8, 16), expected, source, read, note)


def _choice(name: str, title: str, read: Reader, expected: int, source: Source, *, note: str = PAPER_CHOICE) -> Task:
    decoding = Decoding(temperature=0.8, top_p=1.0, max_new_tokens=3072)
    return Task(name, title, "choice", CHOICE, decoding, 16, (1, 2, 4, 8, 16), expected, source, read, note)


def _code(name: str, title: str, source: Source) -> Task:
    decoding = Decoding(temperature=1.0, top_p=1.0, max_new_tokens=4096)
    return Task(name, title, "code", CODE, decoding, 10, (1, 10), 164, source, rows.code, PAPER_CODE)


_QWEN = "https://github.com/QwenLM/Qwen2.5-Math, folder evaluation/data"

CATALOG: dict[str, Task] = {
    task.name: task
    for task in (
        _math(
            "math500",
            "MATH-500",
            rows.math500,
            500,
            Source(
                ("math_oai/test.jsonl", "math500/test.jsonl", "math500.jsonl"),
                "HuggingFaceH4/MATH-500",
                licence="MIT",
                get=f"{_QWEN}/math_oai/test.jsonl... or the hub",
            ),
        ),
        _math(
            "minerva",
            "Minerva Math",
            rows.minerva,
            272,
            Source(
                ("minerva_math/test.jsonl", "minerva.jsonl"),
                "math-ai/minervamath",
                licence="CC BY-NC-SA (MIT OpenCourseWare)",
                get=f"{_QWEN}/minerva_math/test.jsonl",
            ),
            note=PAPER + " Not lm-eval's `minerva_math`, which is Hendrycks MATH. Relative tolerance 1e-4.",
        ),
        _math(
            "olympiadbench",
            "OlympiadBench",
            rows.olympiadbench,
            675,
            Source(
                ("olympiadbench/test.jsonl", "olympiadbench.jsonl"),
                "Hothan/OlympiadBench",
                "OE_TO_maths_en_COMP",
                "train",
                "MIT",
                f"{_QWEN}/olympiadbench/test.jsonl",
            ),
            note=PAPER
            + " The 675 open-ended English competition problems (OE_TO_maths_en_COMP), which fit the paper's "
            "scores; its table gives the size of the whole set, 8,476.",
        ),
        _math(
            "aime24",
            "AIME 2024",
            rows.integer,
            30,
            Source(
                ("aime24/test.jsonl", "aime24.jsonl"),
                "HuggingFaceH4/aime_2024",
                split="train",
                licence="problems belong to the MAA",
                get=f"{_QWEN}/aime24/test.jsonl",
            ),
        ),
        _math(
            "amc23",
            "AMC 2023",
            rows.integer,
            40,
            Source(
                ("amc23/test.jsonl", "amc23.jsonl"),
                "math-ai/amc23",
                licence="problems belong to the MAA",
                get=f"{_QWEN}/amc23/test.jsonl",
            ),
        ),
        _choice(
            "arc-c",
            "ARC-Challenge",
            rows.arc,
            1172,
            Source(
                ("arc_challenge/test.jsonl", "arc-c.jsonl", "ARC-Challenge-Test.jsonl"),
                "allenai/ai2_arc",
                "ARC-Challenge",
                licence="CC BY-SA 4.0",
                get="https://allenai.org/data/arc, file ARC-Challenge-Test.jsonl",
            ),
            note=PAPER_CHOICE + " The test split; the paper's table gives the size of all splits, 2,590.",
        ),
        _choice(
            "gpqa",
            "GPQA Diamond",
            rows.gpqa,
            198,
            Source(
                ("gpqa/gpqa_diamond.csv", "gpqa_diamond.csv", "gpqa/gpqa_diamond.jsonl", "gpqa_diamond.jsonl"),
                "Idavidrein/gpqa",
                "gpqa_diamond",
                "train",
                "CC BY 4.0; its authors ask that it is not put out as plain text",
                "ask for access at https://huggingface.co/datasets/Idavidrein/gpqa, then save gpqa_diamond.csv",
            ),
            note=PAPER_CHOICE + " The subset is our choice; the choices are shuffled by a seed from the problem's id.",
        ),
        _code(
            "humaneval",
            "HumanEval",
            Source(
                ("humaneval/HumanEval.jsonl", "humaneval/HumanEval.jsonl.gz", "HumanEval.jsonl", "HumanEval.jsonl.gz"),
                "openai/openai_humaneval",
                licence="MIT",
                get="https://github.com/openai/human-eval, file data/HumanEval.jsonl.gz",
            ),
        ),
        _code(
            "humaneval+",
            "HumanEval+",
            Source(
                (
                    "humaneval_plus/HumanEvalPlus.jsonl.gz",
                    "humaneval_plus/HumanEvalPlus.jsonl",
                    "HumanEvalPlus.jsonl.gz",
                    "HumanEvalPlus.jsonl",
                ),
                "evalplus/humanevalplus",
                licence="Apache-2.0",
                get="https://github.com/evalplus/humanevalplus_release, file HumanEvalPlus.jsonl.gz of v0.1.10",
            ),
        ),
        _math(
            "gsm8k",
            "GSM8K",
            rows.gsm8k,
            1319,
            Source(
                ("gsm8k/test.jsonl", "gsm8k.jsonl"),
                "openai/gsm8k",
                "main",
                licence="MIT",
                get="https://github.com/openai/grade-school-math, file grade_school_math/data/test.jsonl",
            ),
            note="Not in the paper; decoding as its mathematics.",
        ),
    )
}
"""Name -> task."""
