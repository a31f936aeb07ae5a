"""Checkpoints and manifests as values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.model.checkpoint import SHORT, Checkpoint, Manifest, Part
from holdfast.model.subject import Subject

CHECKPOINT = Checkpoint(
    id="019a0000-0000-7000-8000-000000000000",
    subject=Subject("state", "x"),
    parents=(),
    reason="manual",
    stage=None,
    time=datetime(2026, 1, 1, tzinfo=UTC),
    digest="0123456789abcdef" * 4,
    size_bytes=3,
    stored_bytes=3,
    part_count=1,
    sequence=1,
)


def test_people_see_the_beginning_of_the_digest() -> None:
    assert CHECKPOINT.short == "01234567"
    assert len(CHECKPOINT.short) == SHORT


def test_a_checkpoint_does_not_change() -> None:
    with pytest.raises(AttributeError):
        CHECKPOINT.reason = "another"  # type: ignore[misc]


def test_a_manifest_finds_its_parts() -> None:
    part = Part(name="state", size=3, split="whole", root="00" * 32)
    manifest = Manifest(checkpoint=CHECKPOINT, parts=(part,))
    assert manifest.part("state") is part
    assert manifest.part("other") is None
