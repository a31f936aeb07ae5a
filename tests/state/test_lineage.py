"""What came before a checkpoint, and which ones to let go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.lineage import StateCheckpoint, earlier, find, surplus


def checkpoint(
    number: int, parent: int | None = None, rollback_of: int | None = None
) -> StateCheckpoint:
    return StateCheckpoint(
        id=str(number),
        session_id="s",
        time=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number),
        reason="",
        stage="",
        parent=None if parent is None else str(parent),
        rollback_of=None if rollback_of is None else str(rollback_of),
    )


def test_the_oldest_go_first() -> None:
    present = [checkpoint(number) for number in (4, 3, 2, 1)]
    assert [each.id for each in surplus(present, 2)] == ["1", "2"]
    assert surplus(present, 4) == []
    assert surplus([], 1) == []


def test_rollbacks_whose_content_is_elsewhere_go_before_them() -> None:
    present = [
        checkpoint(5, 1, 2),
        checkpoint(4, 1, 2),
        checkpoint(3),
        checkpoint(2),
        checkpoint(1),
    ]
    assert [each.id for each in surplus(present, 3)] == ["4", "1"]


def test_the_last_one_with_a_content_is_no_copy() -> None:
    # 3 has the content of 1, which is gone.
    present = [checkpoint(4, 1), checkpoint(3, None, 1), checkpoint(2)]
    assert [each.id for each in surplus(present, 2)] == ["2"]
    assert find("1", present) == present[1]
    assert earlier(present[0], present) == present[1]


def test_nothing_earlier() -> None:
    first = checkpoint(1)
    assert earlier(first, [first]) is None
    assert earlier(checkpoint(3, 2), [first]) is None


@st.composite
def histories(draw: st.DrawFn) -> list[StateCheckpoint]:
    """Newest first: checkpoints, and rollbacks to some of those before."""
    made: list[StateCheckpoint] = []
    count: int = draw(st.integers(0, 12))
    for number in range(count):
        go_back: bool = draw(st.booleans())
        if made and go_back:
            target: StateCheckpoint = draw(st.sampled_from(made))
            parent = None if target.parent is None else int(target.parent)
            made.append(checkpoint(number, parent, int(target.origin)))
        else:
            made.append(checkpoint(number, int(made[-1].origin) if made else None))
    return made[::-1]


@given(histories(), st.integers(1, 12))
def test_the_limit_holds_and_the_newest_stays(present: list[StateCheckpoint], limit: int) -> None:
    removed = surplus(present, limit)
    assert len(set(removed)) == len(removed)
    assert len(present) - len(removed) == min(limit, len(present))
    if present:
        assert present[0] not in removed


@given(histories(), st.integers(1, 12))
def test_no_content_goes_while_there_is_a_copy_to_spare(
    present: list[StateCheckpoint], limit: int
) -> None:
    removed = surplus(present, limit)
    kept = [each for each in present if each not in removed]
    lost = {each.origin for each in removed} - {each.origin for each in kept}
    spare = [each for each in kept[1:] if each.rollback_of]
    copies = [
        each
        for each in spare
        if any(other.origin == each.origin for other in kept if other is not each)
    ]
    assert not (lost and copies)
