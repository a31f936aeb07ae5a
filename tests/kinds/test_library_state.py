"""What a session set in the libraries of this environment comes back."""

from __future__ import annotations

import pytest
from tests.kinds.environment import python
from tests.session.settings_of import Library, Tried

LIBRARIES = (
    Library("plotly",
            "import plotly.io as pio, plotly.graph_objects as go, plotly.express as px",
            "pio.templates['own'] = go.layout.Template(layout={'font': {'size': 33}})\n"
            "pio.templates.default = 'plotly_dark+own'\npx.defaults.width = 123\n"
            "pio.renderers.default = 'json'",
            "pio.templates.default, px.defaults.width, pio.renderers.default,"
            "pio.templates['own'].layout.font.size"),
    Library("altair", "import altair as alt",
            "alt.data_transformers.disable_max_rows()\n"
            "alt.renderers.enable('mimetype', embed_options={'actions': False})\n"
            "@alt.theme.register('own', enable=True)\n"
            "def own():\n    return alt.theme.ThemeConfig({'height': 7})",
            "alt.theme.active, alt.theme.get()(), alt.data_transformers.options,"
            "alt.renderers.active, alt.renderers.options"),
    Library("dask", "import dask", "dask.config.set({'array.chunk-size': '1MiB', 'own.x': 3})",
            "dask.config.get('array.chunk-size'), dask.config.get('own.x', None)"),
    Library("xarray", "import xarray as xr", "xr.set_options(display_width=33, keep_attrs=True)",
            "xr.get_options()['display_width'], xr.get_options()['keep_attrs']"),
    Library("tqdm", "import pandas as pd\nfrom tqdm import tqdm",
            "tqdm.pandas(desc='x', disable=True)",
            "pd.Series([1, 2]).progress_apply(lambda x: x + 1).tolist(),"
            "pd.DataFrame({'a': [1]}).groupby('a').progress_apply(len).tolist()"),
    Library("seaborn", "import seaborn as sns, matplotlib.colors as colors",
            "sns.set_theme(style='darkgrid', palette='pastel')",
            "colors.to_hex('b'), sns.axes_style()['axes.facecolor']"),
    Library("spacy", "import spacy\nfrom spacy.tokens import Doc, Token",
            "Token.set_extension('fruit', getter=lambda token: token.text == 'apple')\n"
            "Doc.set_extension('n', default=5)\ndoc = spacy.blank('en')('an apple')\ndoc._.n = 7",
            "[token._.fruit for token in doc], doc._.n, spacy.blank('en')('x')._.n"),
    Library("sympy", "import sympy\nx = sympy.Symbol('x')",
            "sympy.init_printing(order='lex', use_unicode=False)",
            "sympy.pretty(x**2 + 1 / x), repr(x**2 + 1 / x),"
            "sympy.printing.printer.Printer._global_settings"),
    Library("keras", "import os; os.environ['KERAS_BACKEND'] = 'jax'\nimport keras",
            "keras.config.set_floatx('float64')\nkeras.config.set_epsilon(1e-3)\n"
            "keras.config.set_image_data_format('channels_first')",
            "keras.config.floatx(), keras.config.epsilon(), keras.config.image_data_format()"),
    Library("jax", "import jax, jax.numpy as jnp", "jax.config.update('jax_enable_x64', True)",
            "str(jnp.ones(2).dtype)"),
    Library("nltk", "import nltk", "nltk.data.path.append('/some/where')", "nltk.data.path[-1]"),
)  # fmt: skip


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    return Tried(LIBRARIES, tmp_path_factory.mktemp("settings"), python())


@pytest.mark.parametrize("name", [library.name for library in LIBRARIES])
def test_settings_of_a_library_come_back(tried: Tried, name: str) -> None:
    tried.check(name)


def test_nothing_is_told_of_settings_that_come_back(tried: Tried) -> None:
    assert tried.told == []
