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
