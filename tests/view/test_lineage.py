"""The drawing of a lineage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.subject import Subject
from holdfast.view.lineage import draw, to_ascii, trace

START = datetime(2026, 1, 1, tzinfo=UTC)
DEMO = Subject("state", "demo")


def checkpoint(name: str, *parents: str, subject: Subject = DEMO, sequence: int = 0) -> Checkpoint:
    return Checkpoint(
        id=name,
        subject=subject,
        parents=parents,
        reason="manual",
        stage=None,
        time=START + timedelta(seconds=sequence),
        digest=name * 8,
        size_bytes=1,
        stored_bytes=1,
        part_count=1,
        sequence=sequence,
    )


def picture(*checkpoints: Checkpoint, head: str | None = None) -> list[str]:
    rows = draw(checkpoints, head)
    return [f"{row.graph} {row.checkpoint.id}" if row.checkpoint else row.graph for row in rows]


def test_one_line() -> None:
    chain = (checkpoint("c", "b"), checkpoint("b", "a"), checkpoint("a"))
    assert picture(*chain, head="c") == ["● c", "○ b", "○ a"]


def test_two_lines_from_one_checkpoint() -> None:
    drawn = picture(
        checkpoint("d", "b"), checkpoint("c", "b"), checkpoint("b", "a"), checkpoint("a"), head="d"
    )
    assert drawn == ["● d", "│ ○ c", "├─╯", "○ b", "○ a"]


def test_three_lines_join_in_one_row() -> None:
    drawn = picture(*(checkpoint(each, "a") for each in "dcb"), checkpoint("a"))
    assert drawn == ["○ d", "│ ○ c", "│ │ ○ b", "├─┴─╯", "○ a"]


def test_a_lane_that_goes_on_is_crossed() -> None:
    drawn = picture(
        checkpoint("f", "b"),
        checkpoint("e", "a"),
        checkpoint("d", "b"),
        checkpoint("b", "a"),
        checkpoint("a"),
    )
    assert drawn == ["○ f", "│ ○ e", "│ │ ○ d", "├─┼─╯", "○ │ b", "├─╯", "○ a"]


def test_two_parents_open_a_lane() -> None:
    drawn = picture(
        checkpoint("d", "c", "b"), checkpoint("c", "a"), checkpoint("b", "a"), checkpoint("a")
    )
    assert drawn == ["○ d", "├─╮", "○ │ c", "│ ○ b", "├─╯", "○ a"]


def test_a_parent_that_is_gone_ends_the_line() -> None:
    assert picture(checkpoint("c", "gone"), checkpoint("a")) == ["○ c", "", "○ a"]


def test_lines_that_have_nothing_in_common_are_apart() -> None:
    drawn = picture(
        checkpoint("d", "c"), checkpoint("c"), checkpoint("b", "a"), checkpoint("a"), head="d"
    )
    assert drawn == ["● d", "○ c", "", "○ b", "○ a"]


def test_lines_are_apart_beside_one_that_goes_on() -> None:
    drawn = picture(checkpoint("d", "a"), checkpoint("c"), checkpoint("b"), checkpoint("a"))
    assert drawn == ["○ d", "│ ○ c", "│", "│ ○ b", "○ a"]
    drawn = picture(checkpoint("d", "b"), checkpoint("c"), checkpoint("b"), checkpoint("a"))
    assert drawn == ["○ d", "│ ○ c", "○ b", "", "○ a"]


def test_ascii() -> None:
    assert to_ascii("│ ○├─┴─╯●") == "| o|-'-/*"


def test_forks_and_origins_are_found() -> None:
    other, third = Subject("state", "other"), Subject("state", "third")
    origin = checkpoint("o", subject=other)
    own = checkpoint("a", "o")
    fork = checkpoint("f", "a", subject=third)
    lineage = trace(DEMO, [fork, own, origin], "a")
    assert lineage.checkpoints == [own]
    assert lineage.origins == (origin,)
    assert lineage.forks == (fork,)


@given(st.data())
def test_any_graph_is_drawn_once_and_in_order(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 12))
    made: list[Checkpoint] = []
    for number in range(count):
        parents = data.draw(
            st.lists(st.sampled_from([each.id for each in made]), unique=True, max_size=3)
            if made
            else st.just([])
        )
        made.append(checkpoint(f"n{number}", *parents, sequence=number))
    newest_first = made[::-1]
    rows = draw(newest_first, None)
    assert [row.checkpoint for row in rows if row.checkpoint] == newest_first
    for row in rows:
        assert row.graph == row.graph.rstrip()
        assert row.graph.count("○") == (row.checkpoint is not None)
    for row, below in pairwise(rows):
        if row.checkpoint and below.checkpoint and row.graph.index("○") == below.graph.index("○"):
            assert below.checkpoint.id in row.checkpoint.parents
