"""The agent's own JSON says and reads what `json` does."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.sandbox.agent.small import decode, encode

SAID = st.dictionaries(
    st.text(), st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
HEARD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(SAID)
def test_what_it_says_is_json(header: dict[str, object]) -> None:
    assert json.loads(encode(header)) == header


@given(st.dictionaries(st.text(), HEARD, max_size=4))
def test_it_reads_what_json_writes(order: dict[str, object]) -> None:
    assert decode(json.dumps(order).encode()) == order
