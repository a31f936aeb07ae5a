"""Scripts as cells: where they are cut, and which of them still have to run."""

from __future__ import annotations

import ast
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput
from holdfast.model.subject import Subject
from holdfast.session.script import (
    Cell,
    cells_of,
    left,
    line,
    number_of,
    plan,
    restarted,
    script_of,
)

TEXT = '''# A script.
import os
# %% load
rows = [1,
        2]
note = """
# %% this is text
"""
# %% [markdown]
# Only words here.
# %%

total = sum(rows)
'''


def titles(text: str) -> list[tuple[int, str]]:
    return [(cell.first, cell.title) for cell in cells_of(text)]


def after(cell: Cell, *, parent: str | None = None, **more: object) -> Checkpoint:
    fields: dict[str, object] = {
        "id": f"id-{cell.number}-{cell.mark}",
        "subject": Subject("session", "s"),
        "parents": (parent,) if parent else (),
        "reason": "run",
        "stage": cell.stage,
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "digest": "d" * 64,
        "size_bytes": 0,
        "stored_bytes": 0,
        "part_count": 0,
        "sequence": cell.number,
    }
    return Checkpoint(**(fields | more))  # type: ignore[arg-type]


def test_cells_are_cut_at_their_lines_and_nowhere_else() -> None:
    assert titles(TEXT) == [(1, "import os"), (3, "load"), (11, "total = sum(rows)")]


def test_a_cell_keeps_the_scripts_line_numbers() -> None:
    cell = cells_of(TEXT)[1]
    tree = ast.parse(cell.code)
    assert tree.body[0].lineno == 4
    assert ast.parse(cells_of(TEXT)[2].code).body[0].lineno == 13


def test_without_marks_each_statement_is_a_cell() -> None:
    text = (
        "import os\n\n# about it\n@staticmethod\ndef f():\n    pass\na = 1; b = 2\nif a:\n    b\n"
    )
    assert [cell.text for cell in cells_of(text)] == [
        "import os\n\n# about it\n",
        "@staticmethod\ndef f():\n    pass\n",
        "a = 1; b = 2\n",
        "if a:\n    b\n",
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a = 1\nb = (\n", "s.py, line 2"),
        ("def f():\n    a\n# %%\n    b\n", "s.py, line 4: a # %% line stands in the middle"),
        ("a = '\0'\n", "s.py"),
    ],
)
def test_what_is_no_python_is_refused_before_anything_runs(text: str, where: str) -> None:
    with pytest.raises(BadInput, match=where):
        cells_of(text, "s.py")


def test_an_empty_script_has_no_cells() -> None:
    assert cells_of("") == cells_of("# nothing\n") == ()


@given(st.lists(st.sampled_from(["a = 1", "b = 2", "x = '''\n# %%\n'''", "print(1)"]), max_size=8))
def test_the_cells_are_the_script(statements: list[str]) -> None:
    text = "\n".join(f"# %%\n{each}" for each in statements) + "\n"
    cells = cells_of(text)
    assert len(cells) == len(statements)
    assert "".join(cell.text for cell in cells) == text.lstrip("\n")
    assert len({cell.mark for cell in cells}) == len(cells)


def test_a_plan_goes_on_after_the_last_cell_that_is_unchanged() -> None:
    before = cells_of("# %%\na = 1\n# %%\nb = 2\n# %%\nc = 3\n")
    past = [after(cell) for cell in reversed(before)]

    assert plan(before, past).rest == ()
    assert plan(before, past[1:]).done == 2
    assert plan(before, []).at is None

    changed = cells_of("# %%\na = 1\n\n# %%\nb = 22\n# %%\nc = 3\n")
    found = plan(changed, past)
    assert found.done == 1  # the blank line after the first cell changes nothing
    assert found.at is past[2]
    assert found.stale is past[0]
    assert [cell.number for cell in found.rest] == [2, 3]


def test_other_checkpoints_in_between_are_passed_over() -> None:
    cells = cells_of("a = 1\nb = 2\n")
    past = [after(cells[0], stage=None, id="by hand"), after(cells[0])]
    assert plan(cells, past).at is past[1]


def test_running_again_from_a_cell() -> None:
    cells = cells_of("a = 1\nb = 2\nc = 3\n")
    past = [after(cells[1]), after(cells[0])]
    now = plan(cells, past)
    assert restarted(now, past, 2).at is past[1]
    assert restarted(now, past, 3).done == 2
    assert restarted(now, past, 1).at is None
    with pytest.raises(BadInput, match="no cell 4"):
        restarted(now, past, 4)
    with pytest.raises(BadInput, match="cell 3 needs the cells before it"):
        restarted(plan(cells, past[1:]), past[1:], 3)
    with pytest.raises(BadInput, match="the checkpoint after cell 1 is gone"):
        restarted(now, past[:1], 2)


def test_a_line_follows_parents_and_sees_through_rollbacks() -> None:
    cells = cells_of("a = 1\nb = 2\nc = 3\n")
    one, two = after(cells[0]), after(cells[1], parent=after(cells[0]).id)
    back = after(cells[2], id="back", parent=two.id, rollback_of=one.id, stage=None)
    assert list(line([back, two, one], back)) == [one]
    assert list(line([two, one], two)) == [two, one]
    again = after(cells[2], id="again", parent=back.id, rollback_of=back.id, stage=None)
    assert list(line([again, back, two, one], again)) == [one]
    assert list(line([], None)) == []


def test_a_rollback_to_what_is_gone_ends_the_line() -> None:
    cells = cells_of("a = 1\nb = 2\n")
    one, two = after(cells[0]), after(cells[1], parent=after(cells[0]).id)
    back = after(cells[1], id="back", parent=two.id, rollback_of="gone", stage=None)
    assert list(line([back, two, one], back)) == [back]
    assert plan(cells, line([back, two, one], back)).done == 0

    again = after(cells[1], id="again", parent=back.id, rollback_of=back.id, stage=None)
    assert list(line([again, back, two, one], again)) == [back]

    # The content is its target's, and so is the mark that it bears.
    marked = after(cells[0], id="marked", parent=two.id, rollback_of="gone")
    assert plan(cells, line([marked, two, one], marked)).done == 1


def test_with_other_arguments_nothing_has_run() -> None:
    text = "a = 1\nb = 2\n"
    plain, one, other = (cells_of(text, arguments=given) for given in ([], ["1"], ["2"]))
    assert plain[0].stage == f"cell 1 of 2 #{plain[0].mark}"  # as it always was
    for ran in (plain, one, other):
        past = [after(cell) for cell in reversed(ran)]
        for cells in (plain, one, other):
            found = plan(cells, past)
            assert found.done == (2 if cells is ran else 0)
            assert found.changed == ("cell" if cells is ran else "arguments")
            assert found.stale is (None if cells is ran else past[0])
    past = [after(cell) for cell in reversed(one)]
    assert restarted(plan(one, past), past, 2).at is past[1]
    with pytest.raises(BadInput, match="cell 2 needs the cells before it"):
        restarted(plan(other, past), past, 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [([], [""]), (["a", "b"], ["ab"]), (["", "a"], ["a", ""]), (["\udcff"], ["?"])],
)
def test_no_arguments_are_taken_for_others(one: list[str], other: list[str]) -> None:
    assert cells_of("a", arguments=one)[0].stage != cells_of("a", arguments=other)[0].stage


def test_another_script_under_the_same_name_is_told_apart() -> None:
    one, other = cells_of("a = 1\n"), cells_of("b = 2\n", arguments=["x"])
    past = [after(one[0], reason="run one.py")]
    assert script_of(past[0]) == "one.py"
    assert plan(other, past, "other.py").changed == "script"
    assert plan(other, past, "one.py").changed == "arguments"
    forked = [after(one[0], reason="fork of session/s")]
    assert plan(cells_of("b = 2\n"), forked, "other.py").changed == "cell"  # nobody can tell
    assert script_of(after(one[0], stage=None, reason="run one.py")) is None  # somebody's words


def test_work_of_others_that_a_plan_leaves() -> None:
    cells = cells_of("a = 1\nb = 2\n")
    own = after(cells[0], reason="run s.py")
    by_hand = after(cells[0], id="by hand", parent=own.id, stage=None)

    def leaves(*past: Checkpoint, name: str = "s.py", text: str = "a = 1\nb = 3\n") -> bool:
        return left(plan(cells_of(text), past, name), past, name) is not None

    assert not leaves()
    assert not leaves(own)
    assert not leaves(own, text="a = 2\n")  # its own former self: that is said already
    assert leaves(by_hand)
    assert leaves(by_hand, own)
    assert not leaves(by_hand, own, text="a = 1\n")  # nothing is run
    assert leaves(own, name="t.py", text="c = 1\n")
    assert not leaves(own, name="t.py")  # it goes on where the other ended


def test_no_cell_of_a_script_without_code_can_be_run_again() -> None:
    with pytest.raises(BadInput, match="no cell 1") as told:
        restarted(plan((), []), [], 1)
    assert told.value.hint == "the script has no code"


def test_a_cell_is_named_by_its_title() -> None:
    cells = cells_of("# %% load\na = 1\n# %% sort\nb = 1\n# %%\nc = 1\n# %% sort\nd = 1\n")
    assert number_of(cells, "load") == 1
    assert number_of(cells, "c = 1") == 3
    with pytest.raises(BadInput, match="2 cells have the title 'sort'") as told:
        number_of(cells, "sort")
    assert told.value.hint == "by number: 2, 4"
    with pytest.raises(BadInput, match="no cell has the title 'laod'") as told:
        number_of(cells, "laod")
    assert told.value.hint == "did you mean 'load'?"
    with pytest.raises(BadInput, match="no cell has the title"):
        number_of((), "load")


def test_another_title_is_no_change() -> None:
    before = cells_of("# %% load\na = 1\n# %% sort\n# how\nb = 2\n")
    past = [after(cell) for cell in reversed(before)]
    assert plan(cells_of("# %%\na = 1\n#%% Sort it\n# how\nb = 2\n"), past).rest == ()
    assert plan(cells_of("a = 1\n# %% sort\n# how\nb = 2\n"), past).rest == ()
    assert plan(cells_of("# %% load\na = 1\n# %% sort\n# why\nb = 2\n"), past).done == 1
    assert plan(cells_of("# %% load\na = 1\n# how\nb = 2\n"), past).done == 0


def test_marks_that_were_made_with_the_titles_still_count() -> None:
    cells = cells_of("# %% a\nq=1\n# %% b\nw=2\n# %% c\ne=3\n")
    stages = ("cell 2 of 3 #ab926dab0502c016", "cell 1 of 3 #dde391f83edd0078")
    past = [after(cells[0], stage=stage, id=stage) for stage in stages]
    found = plan(cells, past)
    assert (found.done, found.at) == (2, past[0])
    assert restarted(found, past, 2).at is past[1]
