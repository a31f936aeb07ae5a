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


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("df?", "help(df)"), ("?df.head", "help(df.head)"), ("df??", "help(df)"),
        ("!ls -l", "subprocess.run('ls -l', shell=True)"),
        ("files = !ls", "subprocess.run('ls', shell=True)"),
        ("for x in y:\n    !echo {x}", "subprocess.run('echo {x}', shell=True)"),
        ("%timeit f(1)", "timeit.timeit('f(1)'"), ("%%timeit\nf(1)", ""), ("%%bash\nls", ""),
        ("%matplotlib inline", "matplotlib.use"), ("%pip install x", "'install x'.split()"),
        ("%cd /tmp", "os.chdir('/tmp')"), ("x = %timeit -o f()", "timeit"),
    ],
)  # fmt: skip
def test_what_only_ipython_knows_is_shown_there(line: str, instead: str) -> None:
    with pytest.raises(BadInput) as caught:
        magics.parse(line, "my work")
    assert instead in (caught.value.hint or "")
    assert "HOLDFAST_SESSION='my work' ipython --ext holdfast" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "line",
    [
        "x = 5 % 3", "x != 3", "'what?'", "print('!ls')", "x = (", "# ok?",
        "s = \"\"\"\n!ls\n%timeit x\n\"\"\"",
    ],
)  # fmt: skip
def test_python_is_left_to_python(line: str) -> None:
    assert magics.parse(line) is None
