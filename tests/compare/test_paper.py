"""The paper's numbers: what is missing is named, and printed differences are recomputed."""

import pytest

from ranktuner.compare.paper import read_paper
from ranktuner.errors import DataError

WHOLE = """
title = "T"
[[table]]
id = "main"
model = "Org/Model-7B"
columns = ["math500 pass@1", "aime24 pass@1"]
rows = [
  {label = "Original", method = "original", values = [50.1, "missing"]},
  {label = "SFT", method = "sft", values = [60.3, 10]},
]
"""


def paper(tmp_path, text):
    path = tmp_path / "p.toml"
    path.write_text(text)
    return read_paper(path)


def test_values_by_row_and_column(tmp_path):
    (table,) = paper(tmp_path, WHOLE).for_model("elsewhere/model-7b")
    assert table.value("Original", "math500 pass@1") == 50.1
    assert table.value("Original", "aime24 pass@1") is None
    assert table.rows[1].numbers() == [60.3, 10.0]
    assert paper(tmp_path, WHOLE).for_model("Other") == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('[50.1, "missing"]', "[50.1]"),
        ('[50.1, "missing"]', '[50.1, ""]'),
        ('[50.1, "missing"]', '[50.1, "?"]'),
        ('[50.1, "missing"]', "[50.1, true]"),
    ],
)
def test_a_missing_number_names_file_table_row_and_column(tmp_path, wrong, said):
    with pytest.raises(DataError) as error:
        paper(tmp_path, WHOLE.replace(wrong, said))
    for part in ("p.toml", "'main'", "'Original'", "'aime24 pass@1'", "number is missing"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("[60.3, 10]", "[60.3, 10, 3]", "3 values for 2 columns"),
        ('"SFT"', '"Original"', "stands there twice"),
        ("aime24 pass@1", "math500 pass@1", "stands there twice"),
        ('id = "main"', 'id = "main"\nmodle = "x"', "unknown setting 'table.modle'"),
    ],
)
def test_other_mistakes(tmp_path, before, after, said):
    with pytest.raises(DataError, match=said):
        paper(tmp_path, WHOLE.replace(before, after))


def test_no_file(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_paper(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("value", "kind"),
    [(10.2, None), (10.3, "rounding"), (10.1, "rounding"), (10.4, "contradiction"), (-10.2, "contradiction")],
)
def test_printed_differences_are_recomputed(tmp_path, value, kind):
    one = f'differences = [{{of = "SFT", to = "Original", column = "math500 pass@1", value = {value}}}]'
    found = paper(tmp_path, WHOLE + one).contradictions()
    assert [c.kind for c in found] == ([kind] if kind else [])
    if found:
        assert found[0].recomputed == 10.2
        assert "SFT less Original" in str(found[0])


def test_a_difference_needs_its_numbers(tmp_path):
    one = 'differences = [{of = "SFT", to = "Original", column = "aime24 pass@1", value = 1}]'
    with pytest.raises(DataError, match="cannot be recomputed"):
        paper(tmp_path, WHOLE + one)
    with pytest.raises(DataError, match="names 'SFTT'"):
        paper(tmp_path, WHOLE + one.replace('"SFT"', '"SFTT"'))
