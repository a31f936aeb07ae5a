"""What a session set in libraries and in its own modules comes back, or is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.session.settings_of import Library, Tried, seen

from holdfast import sync
from holdfast.model.errors import HoldfastError
from holdfast.store import open_store

LIBRARIES = (
    Library("torch", "import torch",
            "torch.set_default_dtype(torch.float64)\n"
            "torch.use_deterministic_algorithms(True, warn_only=True)\n"
            "torch.set_printoptions(precision=2)\ntorch.backends.cudnn.benchmark = True\n"
            "torch.set_num_threads(1)\ntorch.set_grad_enabled(False)",
            "str(torch.ones(1).dtype), torch.are_deterministic_algorithms_enabled(),"
            "torch.is_deterministic_algorithms_warn_only_enabled(), repr(torch.tensor(1 / 3)),"
            "torch.backends.cudnn.benchmark, torch.get_num_threads(), torch.is_grad_enabled()"),
    Library("polars", "import polars as pl",
            "pl.Config.set_tbl_rows(3)\npl.Config.set_float_precision(2)\n"
            "pl.Config.set_fmt_float('full')",
            "str(pl.DataFrame({'a': [1 / 3] * 9}))"),
    Library("matplotlib", "import matplotlib.pyplot as plt, matplotlib.colors as colors",
            "plt.rcParams['lines.linewidth'] = 7\nplt.style.use('ggplot')\n"
            "colors.get_named_colors_mapping()['own'] = '#123456'\n"
            "plt.colormaps.register(colors.ListedColormap(['r', 'g'], name='own'))",
            "plt.rcParams['axes.facecolor'], plt.rcParams['lines.linewidth'],"
            "colors.to_hex('own'), plt.colormaps['own'].N"),
    Library("sklearn", "import sklearn", "sklearn.set_config(transform_output='pandas')",
            "sklearn.get_config()['transform_output']"),
    Library("numpy", "import numpy as np",
            "np.seterrcall(print)\nnp.seterr(all='call')\nnp.set_printoptions(precision=2)",
            "np.geterrcall() is print, np.geterr()['over'], str(np.array([1 / 3]))"),
    Library("pandas", "import pandas as pd",
            "pd.options.display.max_rows = 7\npd.set_option('display.precision', 2)",
            "pd.options.display.max_rows, str(pd.Series([1 / 3]))"),
    Library("networkx", "import networkx as nx",
            "nx.config.warnings_to_ignore = {'cache'}\nnx.config.cache_converted_graphs = False",
            "nx.config.warnings_to_ignore, nx.config.cache_converted_graphs"),
    Library("mpmath", "import mpmath", "mpmath.mp.dps = 40", "str(mpmath.mpf(1) / 3)"),
    Library("pyarrow", "import pyarrow as pa", "pa.set_cpu_count(1)\npa.set_io_thread_count(2)",
            "pa.cpu_count(), pa.io_thread_count()"),
    Library("logging", "import logging",
            "logging.basicConfig(level=10, force=True)\nlogging.getLogger('own').setLevel(40)\n"
            "logging.addLevelName(15, 'LOUD')\nlogging.disable(5)",
            "logging.getLogger().level, logging.getLogger('own').getEffectiveLevel(),"
            "len(logging.getLogger().handlers), logging.root.manager.disable"),
    Library("decimal", "import decimal", "decimal.getcontext().prec = 4",
            "str(decimal.Decimal(1) / 3)"),
    Library("warnings", "import warnings", "warnings.filterwarnings('error', 'a text')",
            "warnings.filters[0][0]"),
    Library("locale", "import locale", "locale.setlocale(locale.LC_ALL, 'C')",
            "locale.setlocale(locale.LC_ALL)"),
)  # fmt: skip


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    return Tried(LIBRARIES, tmp_path_factory.mktemp("settings"))


@pytest.mark.parametrize("name", [library.name for library in LIBRARIES])
def test_settings_of_a_library_come_back(tried: Tried, name: str) -> None:
    tried.check(name)


def test_nothing_is_told_of_settings_that_come_back(tried: Tried) -> None:
    assert tried.told == []


@pytest.mark.parametrize(
    ("stub", "reason"),
    [
        ("raise ImportError('not here')", "not here"),
        ("class mp:\n    pretty = False\n", "prec"),  # without one of its settings
    ],
    ids=["missing", "other version"],
)
def test_what_cannot_be_set_is_named(stub: str, reason: str, tmp_path: Path) -> None:
    store = open_store("memory://")
    with sync.Session("settings", store=store) as session:
        session.execute(
            "import mpmath, decimal, networkx as nx\nmpmath.mp.dps = 40\nmpmath.mp.pretty = True\n"
            "decimal.getcontext().prec = 4\nnx.config.cache_converted_graphs = False",
            check=True,
        )
        session.checkpoint()
    (tmp_path / "mpmath.py").write_text(stub)
    with sync.Session.resume("settings", store=store, env={"PYTHONPATH": str(tmp_path)}) as again:
        assert again.report is not None
        assert reason in again.report["state:settings of mpmath"].reason
        rest = "decimal.getcontext().prec, nx.config.cache_converted_graphs"
        assert seen(again, rest) == (4, False)
        if "pretty" in stub:
            assert seen(again, "mpmath.mp.pretty") is True


def test_a_failed_restore_puts_settings_back(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    with sync.Session(store=open_store("memory://")) as session:
        session.execute(
            "import mpmath, os, time\nmpmath.mp.dps = 40\n"
            "class Slow:\n    def __setstate__(self, state):\n"
            f"        time.sleep(30 if os.path.exists({str(slow)!r}) else 0)\n"
            "value = Slow()\nvalue.x = 1",
            check=True,
        )
        other = session.checkpoint()
        session.execute("mpmath.mp.dps = 20", check=True)
        slow.touch()
        with pytest.raises(HoldfastError):
            session.restore(other, timeout=2)
        assert seen(session, "mpmath.mp.dps") == 20
        slow.unlink()
        session.restore(other)
        assert seen(session, "mpmath.mp.dps") == 40


HELPERS = """
from settings import LEVEL, limits
V = {"a": 1}
seen = []
factor = 2
names = {"x"}
class Config:
    debug = False
    paths = []
    @classmethod
    def enable(cls):
        cls.debug = True
        cls.paths.append("p")
class Box:
    def __init__(self):
        self.held = []
box = Box()
lock = __import__("threading").Lock()
def use(x):
    global factor
    factor += 1
    seen.append(x)
    names.add("y")
    box.held.append(x)
    limits["most"] = 9
    return len(seen)
"""
LOOK = (
    "helpers.V, V is helpers.V, helpers.seen, helpers.factor, sorted(helpers.names),"
    "helpers.Config.debug, helpers.Config.paths, helpers.box.held, helpers.limits,"
    "helpers.limits is settings.limits, helpers.use.__globals__ is vars(helpers), helpers.LEVEL"
)


def _own_modules(folder: Path) -> dict[str, str]:
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "settings.py").write_text("LEVEL = 1\nlimits = {'most': 1}\n")
    return {"PYTHONPATH": str(folder)}


def test_own_modules_come_back_changed(tmp_path: Path) -> None:
    store, env = open_store("memory://"), _own_modules(tmp_path)
    with sync.Session("own", store=store, env=env) as session:
        session.execute("import helpers, settings\nfrom helpers import V, use", check=True)
        fresh = seen(session, LOOK)
        first = session.checkpoint()
        session.execute("V['b'] = 2\nuse(5)\nhelpers.Config.enable()", check=True)
        changed = seen(session, LOOK)
        assert changed != fresh
        second = session.checkpoint()
        wrong = [i for i in second.report.items if i.outcome not in ("exact", "rebuilt")]
        assert wrong == []
        session.restore(first)
        assert seen(session, LOOK) == fresh
        session.restore(second)
        assert seen(session, LOOK) == changed
    (tmp_path / "settings.py").write_text("LEVEL = 70\nlimits = {'most': 1}\n")
    with sync.Session.resume("own", store=store, env=env) as session:
        *same, level = seen(session, LOOK)
        assert [*same, 1] == [*changed]
        assert level == 70, "what the session did not change is as the file has it now"
        assert session.execute("use(6)", check=True).value == 2
        session.checkpoint()
    with sync.Session.resume("own", store=store, env=env) as session:
        assert seen(session, "helpers.seen, helpers.box.held, V is helpers.V") == (
            [5, 6], [5, 6], True,
        )  # fmt: skip


def test_a_failed_restore_leaves_own_modules_alone(tmp_path: Path) -> None:
    slow, env = tmp_path / "slow", _own_modules(tmp_path)
    with sync.Session("own", store=open_store("memory://"), env=env) as session:
        session.execute(
            "import helpers, settings, os, time\nfrom helpers import V, use\n"
            "class Slow:\n    def __setstate__(self, state):\n"
            f"        time.sleep(30 if os.path.exists({str(slow)!r}) else 0)\n"
            "zero = Slow()\nzero.x = 1",
            check=True,
        )
        first = session.checkpoint()
        session.execute("V['b'] = 2\nuse(5)\nhelpers.Config.enable()\nheld = V", check=True)
        changed = seen(session, f"{LOOK}, held is V")
        slow.touch()
        with pytest.raises(HoldfastError):
            session.restore(first, timeout=2)
        assert seen(session, f"{LOOK}, held is V") == changed


def test_a_missing_own_module_is_named(tmp_path: Path) -> None:
    store, env = open_store("memory://"), _own_modules(tmp_path)
    with sync.Session("own", store=store, env=env) as session:
        session.execute("import helpers, settings\nhelpers.use(1)\nx = 3", check=True)
        session.checkpoint()
    (tmp_path / "settings.py").write_text("LEVEL = 1\nlimits = {}\nraise OSError('gone')\n")
    with sync.Session.resume("own", store=store, env=env) as session:
        assert session.report is not None
        assert "gone" in session.report["patch:settings"].reason
        assert session.execute("x", check=True).value == 3
