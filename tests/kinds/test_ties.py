"""Objects of this environment's libraries that belong together do so after a restore."""

from __future__ import annotations

import pytest
from tests.kinds.environment import python
from tests.session.ties import Tie, Tried

TIES = (
    Tie("parts of a plotly figure",
        "import plotly.graph_objects as go\n"
        "fig = go.Figure([go.Scatter(y=[1, 2]), go.Bar(y=[3])], {'xaxis': {'title': 'q'}},"
        " [go.Frame(name='f')])\n"
        "trace, layout, axis, line = fig.data[0], fig.layout, fig.layout.xaxis, fig.data[0].line\n"
        "held, frame = {'bar': fig.data[1]}, fig.frames[0]\nfig.add_annotation(text='a')\n"
        "words = fig.layout.annotations[0]",
        "(setattr(trace, 'name', 'T'), fig.data[0].name, fig.data[0] is trace,"
        " layout is fig.layout, [each.name for each in fig.frames],"
        " setattr(axis, 'type', 'log'), fig.layout.xaxis.type, setattr(line, 'width', 9),"
        " fig.data[0].line.width, held['bar'] is fig.data[1], frame is fig.frames[0],"
        " setattr(words, 'text', 'b'), fig.to_dict()['layout']['annotations'][0]['text'])"),
    Tie("part of a plotly figure that has no name",
        "lone, mine = go.Figure([go.Scatter(y=[1, 2])]).data[0], go.Scatter(y=[3])",
        "(lone.parent is not None, lone.y, mine.parent is None, mine.y)"),
    Tie("model of a formula",
        "import numpy as np, pandas as pd, statsmodels.formula.api as smf\n"
        "def sq(x):\n    return x**2\n"
        "df = pd.DataFrame({'a': np.arange(9.0), 'y': np.arange(9.0) ** 2 + 1})\n"
        "model = smf.ols('y ~ sq(a)', df)\nfitted = model.fit()",
        "(fitted.predict(pd.DataFrame({'a': [3.0]})).round(6).tolist(), model.data.frame is df)"),
    Tie("model made in a function",
        "factor = 2\ndef fit():\n    power = 2\n"
        "    return smf.ols('y ~ np.log1p(a) + I(a**power * factor)', df).fit()\nwithin = fit()",
        "within.predict(pd.DataFrame({'a': [3.0]})).round(6).tolist()"),
    Tie("design matrix of patsy",
        "import patsy\nmatrix = patsy.dmatrix('center(a) + sq(a)', df)",
        "(patsy.build_design_matrices([matrix.design_info], pd.DataFrame({'a': [3.0]}))[0]"
        ".tolist(), matrix.shape)"),
)  # fmt: skip


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    return Tried(TIES, tmp_path_factory.mktemp("ties"), python())


@pytest.mark.parametrize("name", [tie.name for tie in TIES])
def test_objects_belong_together(tried: Tried, name: str) -> None:
    tried.check(name)


@pytest.mark.parametrize("name", ["fig", "trace", "axis", "held", "model", "fitted", "matrix"])
def test_objects_that_belong_together_are_exact(tried: Tried, name: str) -> None:
    assert tried.report[name].outcome == "exact", tried.report[name]
