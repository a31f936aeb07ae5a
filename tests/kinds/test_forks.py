"""Models of libraries with native threads: every checkpoint of their session works, at once.

The captures are made in copies of the worker, which have none of these threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integrations.kernel import Kernel
from tests.kinds.environment import python

from holdfast import sync
from holdfast.session.arriving import PATIENCE
from holdfast.session.worker.forks import LIBRARIES

BEGINNING = """\
import time
import numpy as np
class Slow:
    def __reduce__(self):
        time.sleep(0.1)
        return Slow, ()
slow = Slow()
rng = np.random.default_rng(0)
x = rng.normal(size=(3000, 20))
y = (x[:, 0] > 0).astype(int)
"""
# By library: code that makes `model` with the library's threads, and what a restored one tells.
MODELS = {
    "xgboost": (
        (
            "import xgboost as xgb\n"
            "options = {'objective': 'binary:logistic', 'nthread': 2}\n"
            "model = xgb.train(options, xgb.DMatrix(x, y), 20)"
        ),
        "model.predict(xgb.DMatrix(x)).tolist()",
    ),
    "xgboost, as an estimator": (
        "from xgboost import XGBClassifier\nmodel = XGBClassifier(n_estimators=20).fit(x, y)",
        "model.predict_proba(x).tolist()",
    ),
    "lightgbm": (
        "import lightgbm\nmodel = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1).fit(x, y)",
        "model.predict_proba(x).tolist()",
    ),
    "catboost": (
        (
            "import catboost\n"
            "model = catboost.CatBoostClassifier(\n"
            "    iterations=20, verbose=0, allow_writing_files=False).fit(x, y)"
        ),
        "model.predict_proba(x).tolist()",
    ),
    "faiss": (
        (
            "import faiss\nmodel = faiss.IndexFlatL2(20)\nmodel.add(x.astype('f4'))\n"
            "_ = model.search(x.astype('f4'), 5)"
        ),
        "model.search(x[:50].astype('f4'), 5)[1].tolist()",
    ),
    "torch": (
        (
            "import torch\ntorch.set_num_threads(2)\nmodel = torch.nn.Linear(20, 20).double()\n"
            "optimizer = torch.optim.Adam(model.parameters())\n"
            "model(torch.from_numpy(x)).sum().backward()\noptimizer.step()"
        ),
        "model(torch.from_numpy(x)).tolist()",
    ),
    "polars": (
        (
            "import polars as pl\npiece = pl.DataFrame({'a': x[:, 0]})\n"
            "model = pl.concat([piece] * 4, rechunk=False)\n_ = model.group_by('a').len()"
        ),
        "model['a'].to_list()",
    ),
    "sklearn": (
        (
            "from sklearn.ensemble import HistGradientBoostingClassifier as Model\n"
            "model = Model(max_iter=5).fit(x, y)"
        ),
        "model.predict(x).tolist()",
    ),
    "duckdb": (
        (
            "import duckdb\nconnection = duckdb.connect()\n"
            "model = connection.sql('select sum(range) as s from range(1000000)').fetchall()"
        ),
        "model",
    ),
    "grpc": (
        (
            "import grpc\nchannel = grpc.insecure_channel('127.0.0.1:1')\n"
            "try: grpc.channel_ready_future(channel).result(0.1)\n"
            "except grpc.FutureTimeoutError: pass\n"
            "model = grpc.StatusCode.OK"
        ),
        "str(model)",
    ),
    "scipy": (
        "import scipy.linalg\nmodel = scipy.linalg.svd(x, full_matrices=False)",
        "[m.tolist() for m in model]",
    ),
    "numpy": ("model = x.T @ x", "model.tolist()"),
}


@pytest.mark.parametrize("library", MODELS)
def test_checkpoints_of_a_fitted_model(library: str, tmp_path: Path) -> None:
    code, look = MODELS[library]
    with sync.Session("model", store="memory://", python=python(), cwd=tmp_path) as session:
        session.execute(BEGINNING, check=True)
        session.checkpoint()
        session.execute(f"{code}\nheld = {{'deep': [model]}}", check=True)
        before = session.execute(look, check=True).value
        for number in range(3):
            session.execute(f"number = {number}", check=True)
            started = time.monotonic()
            made = session.checkpoint()
            assert time.monotonic() - started < PATIENCE
            assert made.report["held"].outcome == "exact"
        session.restore()
        assert session.execute("held['deep'][0] is model, number", check=True).value == (True, 2)
        assert session.execute(look, check=True).value == before


def test_every_library_is_tried() -> None:
    assert LIBRARIES.keys() <= {name.partition(",")[0] for name in MODELS}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[type[Kernel]]:
    kernels: list[Kernel] = []

    class Started(Kernel):
        def __init__(self) -> None:
            super().__init__(tmp_path, python(), HOLDFAST_SESSION="analysis")
            kernels.append(self)

    yield Started
    for kernel in kernels:
        kernel.close()


def test_a_notebook_with_fitted_models(start: type[Kernel]) -> None:
    kernel = start()
    kernel.run("%load_ext holdfast")
    kernel.run(BEGINNING)
    looks = []
    for number, library in enumerate(("xgboost", "lightgbm", "polars")):
        code, look = MODELS[library]
        kernel.run(code.replace("model", f"model{number}"))
        looks.append(look.replace("model", f"model{number}"))
    seen = [kernel.run(look) for look in looks]
    for number in range(2):
        kernel.run(f"number = {number}")
        started = time.monotonic()
        kernel.run(f"%checkpoint {number}")
        assert time.monotonic() - started < PATIENCE
    kernel.kill()
    kernel = start()
    kernel.run("%load_ext holdfast")
    assert kernel.run("number") == 1
    assert [kernel.run(look) for look in looks] == seen
