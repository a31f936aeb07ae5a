"""Types of libraries, and of modules that few sessions load, by name: what takes one apart is
imported when a capture meets one."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.session.worker.texts import type_module

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Reduce

# The module beside this one, and the function in it.
_TYPES: dict[tuple[str, str], tuple[str, str]] = {
    ("_asyncio", "Future"): ("tables", "reduce_future"),
    ("_asyncio", "Task"): ("tables", "reduce_future"),
    ("_csv", "reader"): ("tables", "reduce_reader"),
    ("_csv", "writer"): ("tables", "reduce_writer"),
    ("_duckdb", "DuckDBPyConnection"): ("connections", "reduce_duck"),
    ("_duckdb._sqltypes", "DuckDBPyType"): ("connections", "reduce_duck_type"),
    ("_queue", "SimpleQueue"): ("tables", "reduce_queue"),
    ("bz2", "BZ2File"): ("tables", "reduce_unpacked"),
    ("catboost.core", "Pool"): ("models", "reduce_pool"),
    ("concurrent.futures.thread", "ThreadPoolExecutor"): ("tables", "reduce_threads"),
    ("cv2", "BFMatcher"): ("documents", "reduce_matcher"),
    ("cv2", "DMatch"): ("documents", "reduce_match"),
    ("cv2", "KalmanFilter"): ("documents", "reduce_filter"),
    ("cv2", "KeyPoint"): ("documents", "reduce_key_point"),
    ("cv2", "UMat"): ("documents", "reduce_on_device"),
    ("duckdb", "DuckDBPyConnection"): ("connections", "reduce_duck"),
    ("functools", "KeyWrapper"): ("tables", "reduce_comparison"),
    ("gzip", "GzipFile"): ("tables", "reduce_unpacked"),
    ("h5py._hl.dataset", "Dataset"): ("connections", "reduce_hdf_part"),
    ("h5py._hl.files", "File"): ("connections", "reduce_hdf"),
    ("h5py._hl.group", "Group"): ("connections", "reduce_hdf_part"),
    ("jaxlib._jax", "PjitFunction"): ("models", "reduce_jitted"),
    ("jaxlib._jax.pytree", "PyTreeRegistry"): ("models", "reduce_registry"),
    ("jaxlib._jax", "Device"): ("models", "reduce_device"),
    ("lightgbm.basic", "Dataset"): ("models", "reduce_dataset"),
    ("lzma", "LZMAFile"): ("tables", "reduce_unpacked"),
    ("netCDF4", "Dataset"): ("connections", "reduce_net_cdf"),
    ("netCDF4", "Dimension"): ("connections", "reduce_net_cdf_part"),
    ("netCDF4", "Variable"): ("connections", "reduce_net_cdf_part"),
    ("netCDF4._netCDF4", "Dataset"): ("connections", "reduce_net_cdf"),
    ("netCDF4._netCDF4", "Dimension"): ("connections", "reduce_net_cdf_part"),
    ("netCDF4._netCDF4", "Variable"): ("connections", "reduce_net_cdf_part"),
    ("numba.typed.typeddict", "Dict"): ("models", "reduce_dict"),
    ("numba.typed.typedlist", "List"): ("models", "reduce_list"),
    ("numpy", "flatiter"): ("tables", "reduce_flat"),
    ("PIL.ImageDraw", "ImageDraw"): ("documents", "reduce_drawing"),
    ("PIL.ImageFont", "FreeTypeFont"): ("documents", "reduce_font"),
    ("spacy.tokens.span", "Span"): ("documents", "reduce_span"),
    ("spacy.tokens.token", "Token"): ("documents", "reduce_token"),
    ("sqlalchemy.engine.base", "Connection"): ("connections", "reduce_connection"),
    ("sqlalchemy.orm.session", "Session"): ("connections", "reduce_session"),
    ("sqlite3", "Cursor"): ("tables", "reduce_cursor"),
    ("sqlite3", "Row"): ("tables", "reduce_row"),
    ("tarfile", "TarFile"): ("tables", "reduce_tar"),
    ("tempfile", "TemporaryDirectory"): ("tables", "reduce_folder"),
    ("tempfile", "_TemporaryFileWrapper"): ("tables", "reduce_temporary"),
    ("torch.utils.data.dataloader", "_SingleProcessDataLoaderIter"): ("models", "reduce_loading"),
    ("xgboost.core", "DMatrix"): ("models", "reduce_matrix"),
}
# The same of all types that are derived from one.
_BASES: dict[tuple[str, str], tuple[str, str]] = {
    ("cv2", "Algorithm"): ("documents", "reduce_algorithm"),
    ("keras.src.metrics.metric", "Metric"): ("models", "reduce_counted"),
    ("PIL.ImageFile", "ImageFile"): ("documents", "reduce_frames"),
    ("torch", "ScriptFunction"): ("models", "reduce_scripted"),
    ("torch.jit", "ScriptFunction"): ("models", "reduce_scripted"),
    ("torch.jit._script", "ScriptModule"): ("models", "reduce_scripted"),
    ("torch.jit._script", "RecursiveScriptModule"): ("models", "reduce_scripted"),
    ("torch.nn.modules.module", "Module"): ("models", "reduce_module"),
    ("torch.optim.optimizer", "Optimizer"): ("models", "reduce_optimizer"),
}
_NAME: Callable[[type], str] = type.__dict__["__name__"].__get__
_MRO: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def reducer(kind: type) -> Reduce | None:
    """What takes objects of a type apart; None when their own way will do."""
    found = _TYPES.get((type_module(kind), _NAME(kind)))
    if found is None:
        for base in _MRO(kind):
            found = _BASES.get((type_module(base), _NAME(base)))
            if found is not None:
                break
    if found is None and _NAME(kind) == "generator" and type_module(kind).startswith("_cython_"):
        found = "tables", "reduce_rest"
    return None if found is None else _loaded(*found)


@functools.cache
def _loaded(module: str, name: str) -> Reduce:
    made: Reduce = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return made
