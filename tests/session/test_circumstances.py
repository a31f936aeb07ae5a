"""What a session set in its process: it comes back, and goes away with a restore."""

from __future__ import annotations

from pathlib import Path

from tests.session.conftest import Make

from holdfast.session import Session
from holdfast.store import Store


async def test_a_restore_in_place_sets_back_what_came_later(session: Session) -> None:
    before = await session.checkpoint()
    await session.execute(
        "import os, sys, warnings, decimal\nhere = os.getcwd()\nos.environ['LATER'] = '1'\n"
        "os.chdir('/')\nsys.path.append('/later')\nwarnings.simplefilter('error')\n"
        "decimal.getcontext().prec = 3",
        check=True,
    )
    after = await session.checkpoint()
    look = (
        "import os, sys, warnings, decimal\n"
        "[os.environ.get('LATER'), os.getcwd() == '/', '/later' in sys.path,"
        " warnings.filters[0][0] == 'error', decimal.getcontext().prec == 3]"
    )
    await session.restore(before)
    assert (await session.execute(look)).value == [None, False, False, False, False]
    await session.restore(after)
    assert (await session.execute(look)).value == ["1", True, True, True, True]


async def test_filters_of_warnings_come_back_with_their_categories(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "strange.py").write_text("class Odd(Warning): pass\n")
    session = await make("filters")
    await session.execute(
        f"import re, sys, warnings\nsys.path.insert(0, {str(tmp_path)!r})\nimport strange\n"
        "class Mine(UserWarning): pass\n"
        "warnings.filterwarnings('error', 'Some .* text', DeprecationWarning, 'a.module$', 7)\n"
        "warnings.simplefilter('once', Mine)\nwarnings.simplefilter('error', strange.Odd)",
        check=True,
    )
    look = (
        "(odd, mine, told) = warnings.filters[:3]\n"
        "[odd == ('error', None, strange.Odd, None, 0), mine[2] is Mine, told[:1] + told[2:3] +"
        " (told[1].pattern, told[1].flags & re.I != 0, told[3].pattern, told[4])"
        " == ('error', DeprecationWarning, 'Some .* text', True, 'a.module$', 7)]"
    )
    assert (await session.execute(look, check=True)).value == [True, True, True]
    await session.checkpoint()
    await session.shutdown()
    again = await Session.resume("filters", store=session.store)
    assert (await again.execute(look, check=True)).value == [True, True, True]
    await again.shutdown()


async def test_a_filter_whose_category_is_gone_costs_no_other(make: Make, tmp_path: Path) -> None:
    (tmp_path / "strange.py").write_text("class Odd(Warning): pass\n")
    session = await make("odd")
    await session.execute(
        f"import sys, warnings\nsys.path.insert(0, {str(tmp_path)!r})\nfrom strange import Odd\n"
        "warnings.simplefilter('error', Odd)\nwarnings.simplefilter('once', FutureWarning)\n"
        "del Odd",
        check=True,
    )
    await session.checkpoint()
    await session.shutdown()
    (tmp_path / "strange.py").unlink()
    again = await Session.resume("odd", store=session.store)
    assert again.report is not None
    problem = next(item for item in again.report.items if item.name == "state:warnings")
    assert "strange" in problem.reason
    look = "import warnings\nwarnings.filters[0] == ('once', None, FutureWarning, None, 0)"
    assert (await again.execute(look, check=True)).value is True
    await again.shutdown()


async def test_modules_found_through_the_path_of_the_session(make: Make, tmp_path: Path) -> None:
    (tmp_path / "mine_only.py").write_text("def double(n):\n    return 2 * n\n")
    session = await make("path")
    await session.execute(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})", check=True)
    await session.execute("import mine_only\nfrom mine_only import double", check=True)
    await session.checkpoint()
    await session.shutdown()
    again = await Session.resume("path", store=session.store)
    try:
        assert (await again.execute("mine_only.double(2) + double(1)", check=True)).value == 6
    finally:
        await again.shutdown()


async def test_secrets_of_the_environment_are_left_out(session: Session, store: Store) -> None:
    await session.execute(
        "import os\nos.environ['MY_API_KEY'] = 'not-to-be-kept-17'\nos.environ['MINE'] = 'kept'",
        check=True,
    )
    checkpoint = await session.checkpoint()
    for part in store.show(checkpoint.id).parts:
        assert b"not-to-be-kept-17" not in store.read(checkpoint.id, part.name)
    await session.restore(checkpoint)
    result = await session.execute("[os.environ.get('MY_API_KEY'), os.environ['MINE']]", check=True)
    assert result.value == [None, "kept"]


async def test_a_directory_that_is_gone_is_said(make: Make, tmp_path: Path) -> None:
    session = await make("gone")
    there = tmp_path / "there"
    there.mkdir()
    await session.execute(f"import os\nos.chdir({str(there)!r})\nx = 1", check=True)
    await session.checkpoint()
    await session.shutdown()
    there.rmdir()
    again = await Session.resume("gone", store=session.store)
    try:
        assert again.report is not None
        assert "there" in again.report["state:directory"].reason
        assert (await again.execute("x", check=True)).value == 1
    finally:
        await again.shutdown()


async def test_figures_that_only_pyplot_knows(make: Make) -> None:
    session = await make("figure")
    await session.execute(
        "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\n"
        "_ = plt.figure(7), plt.plot([1, 2, 4]), plt.figure('named'), plt.figure(7)\nlog = []\n"
        "_ = plt.gca().callbacks.connect('xlim_changed', lambda axes: log.append('moved'))\n"
        "_ = None",
        check=True,
    )
    checkpoint = await session.checkpoint()
    await session.restore(checkpoint)
    look = (
        "[plt.get_fignums(), plt.get_figlabels(), plt.gcf().number,"
        " [float(y) for y in plt.gca().lines[0].get_ydata()],"
        " (log.clear(), plt.gca().set_xlim(0, 9), set(log))[2]]"
    )
    expected = [[7, 8], ["", "named"], 7, [1.0, 2.0, 4.0], {"moved"}]
    assert (await session.execute(look, check=True)).value == expected
    await session.shutdown()
    again = await Session.resume("figure", store=session.store)
    try:
        assert (await again.execute(look, check=True)).value == expected
    finally:
        await again.shutdown()


async def test_a_tuple_that_is_too_deep_costs_only_itself(session: Session) -> None:
    await session.execute("t = ()\nfor _ in range(20_000): t = (t,)\nx = [1]", check=True)
    checkpoint = await session.checkpoint()
    assert checkpoint.report["x"].outcome == "exact"
    assert checkpoint.report["t"].outcome == "placeholder"


async def test_future_imports_hold_after_a_restore(make: Make) -> None:
    session = await make("future")
    before = await session.checkpoint()
    await session.execute("from __future__ import annotations", check=True)
    after = await session.checkpoint()
    await session.shutdown()
    again = await Session.resume("future", store=session.store)
    look = "def f(x: nowhere): pass\nf.__annotations__"
    assert (await again.execute(look, check=True)).value == {"x": "nowhere"}
    await again.restore(before)
    failed = (await again.execute(look)).error
    assert failed is not None
    assert failed.type == "NameError"
    await again.restore(after)
    assert (await again.execute(look, check=True)).value == {"x": "nowhere"}
    await again.shutdown()
