"""The commands of the prompt and of notebooks, as they are typed."""

from __future__ import annotations

import pytest

from holdfast.model.errors import BadInput
from holdfast.view import magics


def test_magics_are_parsed() -> None:
    assert magics.parse("x = 5 % 3") is None
    assert magics.parse("%diff a 'b c'") == magics.Magic("diff", ("a", "b c"))
    for wrong in ("%", "%unknown", "%fork", "%restore a b", "%log 'x"):
        with pytest.raises(BadInput):
            magics.parse(wrong)
    for wrong in ("%fork", "%fork a b"):
        with pytest.raises(BadInput, match="one name, please: %fork NAME"):
            magics.parse(wrong)
    with pytest.raises(BadInput, match="too many words: %log"):
        magics.parse("%log all")
