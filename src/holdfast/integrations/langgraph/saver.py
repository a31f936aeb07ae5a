"""The saver: LangGraph's checkpoints as checkpoints on a store.

Every checkpoint of a thread is one of Holdfast's, so `holdfast list`, `show`, `diff`, `rollback`
and `fork` work on threads. What did not change between two steps is stored once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.integrations.langgraph.packing import Known, Packer, unpack
from holdfast.integrations.langgraph.records import FORMAT, Record
from holdfast.integrations.langgraph.subjects import Space
from holdfast.integrations.langgraph.threads import Threads
from holdfast.model.checkpoint import Checkpoint as Stored
from holdfast.model.errors import BadInput, Corrupt, NotFound
from holdfast.store import Store, open_store

_REMEMBERED = 64  # threads
_DELTAS = "counters_since_delta_snapshot"

List = list  # inside the class, `list` is the verb
# LangGraph's own types have values of any type in many places: hence the Any in this module.


class HoldfastSaver(BaseCheckpointSaver[int]):
    """Keeps the threads of a graph on a store; for `invoke` and for `ainvoke`.

    On load, only types that LangGraph considers safe and those in `types` are rebuilt; of any
    other, the plain data comes back. All methods may be called from several threads, and several
    processes may use one store.
    """

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        types: Iterable[type] = (),
        serde: SerializerProtocol | None = None,
    ) -> None:
        """`store` is a store or its address, the default store when not given. A `serde` of one's
        own decides itself what it rebuilds, so `types` cannot be given with it."""
        allowed = [(each.__module__, each.__name__) for each in types]
        if serde is not None and allowed:
            raise BadInput("a serde of your own decides which types it rebuilds: leave out types=")
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=allowed or None))
        self.store = store if isinstance(store, Store) else open_store(store)
        self._threads = Threads(self.store)
        self._seen: OrderedDict[Space, Known] = OrderedDict()  # of what was put last
        self._lock = threading.Lock()

    # reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        space = _space(config)
        wanted = get_checkpoint_id(config)
        stored = (
            self._threads.line(space.subject).newest(wanted)
            if wanted
            else self._threads.latest(space)
        )
        return self._tuple(space, stored) if stored is not None else None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        about: Mapping[str, Any] = (config or {}).get("configurable") or {}
        wanted, end = about.get("checkpoint_id"), get_checkpoint_id(before) if before else None
        thread = str(about["thread_id"]) if "thread_id" in about else None
        found = [
            (checkpoint_id, space, stored[-1])
            for space in self._threads.spaces(thread, about.get("checkpoint_ns"))
            for checkpoint_id, stored in self._threads.line(space.subject).ids().items()
            if (not wanted or checkpoint_id == wanted) and (not end or checkpoint_id < end)
        ]
        left = len(found) if limit is None else max(limit, 0)
        for _, space, stored in sorted(found, key=lambda each: each[0], reverse=True):
            if not left:
                return
            made = self._tuple(space, stored, filter)
            if made is not None:
                left -= 1
                yield made

    # writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        space = _space(config)
        about = get_checkpoint_metadata(config, metadata)
        packer = Packer(self.serde, self._seen.get(space))
        record = {
            "langgraph": FORMAT,
            "parent": get_checkpoint_id(config),
            "checkpoint": packer.pack(dict(checkpoint)),
            "metadata": packer.pack(dict(about)),
        }
        self._threads.put(space, checkpoint["id"], {**record, "typed": packer.typed})
        self._remember(space, packer.rows)
        return _config(space, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        space = _space(config)
        checkpoint_id = get_checkpoint_id(config)
        if checkpoint_id is None:
            raise BadInput("writes belong to a checkpoint: the config has no checkpoint_id")
        packer = Packer(self.serde)
        packed = [
            [WRITES_IDX_MAP.get(channel, at), channel, packer.pack(value)]
            for at, (channel, value) in enumerate(writes)
        ]
        record = {
            "langgraph": FORMAT,
            "task": task_id,
            "path": task_path,
            "writes": packed,
            "typed": packer.typed,
        }
        self._threads.put_writes(space, checkpoint_id, record)

    # letting go

    def delete_thread(self, thread_id: str) -> None:
        for space in self._threads.spaces(str(thread_id)):
            for subject in (space.subject, space.writes):
                self._threads.drop(self.store.list(subject))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        doomed = set(map(str, run_ids))
        for space in self._threads.spaces() if doomed else ():
            self._threads.forget(space, self._threads.of_runs(space, doomed))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise BadInput(f"unknown strategy {strategy!r}", hint="keep_latest or delete")
        for thread in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread)
                continue
            for space in self._threads.spaces(str(thread)):
                ids = set(self._threads.line(space.subject).ids())
                self._threads.forget(space, ids - self._needed(space))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        for space in self._threads.spaces(str(source_thread_id)):
            self._threads.copy(space, Space(str(target_thread_id), space.namespace))

    # the same, awaited

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (each := await asyncio.to_thread(next, found, None)) is not None:
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    # inside

    def _remember(self, space: Space, rows: Known) -> None:
        with self._lock:
            self._seen[space] = rows
            self._seen.move_to_end(space)
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)

    def _unpacked(self, record: Record, value: Any) -> Any:
        return unpack(value, self.serde) if record.get("typed", True) else value

    def _tuple(
        self,
        space: Space,
        stored: Stored,
        wanted: dict[str, Any] | None = None,
    ) -> CheckpointTuple | None:
        """The whole of it; None when it is gone, or its metadata is not what is wanted."""
        try:
            record = self._threads.record(stored)
        except NotFound:
            return None  # somebody let go of it since
        if not all(isinstance(record.get(name), dict) for name in ("checkpoint", "metadata")):
            raise Corrupt(f"{stored.short} is no checkpoint of LangGraph", where=stored.id)
        metadata = self._unpacked(record, record["metadata"])
        if wanted and any(metadata.get(name) != value for name, value in wanted.items()):
            return None
        checkpoint = self._unpacked(record, record["checkpoint"])
        parent = record.get("parent")
        return CheckpointTuple(
            config=_config(space, checkpoint["id"]),
            checkpoint=checkpoint,
            metadata=metadata,
            parent_config=_config(space, parent) if parent else None,
            pending_writes=self._writes(space, checkpoint["id"], stored),
        )

    def _writes(self, space: Space, checkpoint_id: str, stored: Stored) -> List[PendingWrite]:
        found: dict[tuple[str, int], tuple[str, str, Any]] = {}
        for each in self._threads.line(space.writes).get(checkpoint_id):
            if stored.rollback_of and each.sequence < stored.sequence:
                continue  # what came of the checkpoint before it was gone back to
            try:
                record = self._threads.record(each)
            except NotFound:
                continue
            for at, channel, value in record["writes"]:
                # A task that is tried again does not write twice; errors and interrupts replace.
                if at < 0 or (record["task"], at) not in found:
                    value = self._unpacked(record, value)
                    found[record["task"], at] = (record["path"], channel, value)
        order = sorted(found, key=lambda key: writes_sort_key(found[key][0], *key))
        return [(key[0], *found[key][1:]) for key in order]

    def _needed(self, space: Space) -> set[str]:
        """The latest checkpoint, and the ancestors that its delta channels are rebuilt from."""
        latest = self._threads.latest(space)
        made = self._tuple(space, latest) if latest else None
        kept: set[str] = set()
        deltas: Any = made.metadata.get(_DELTAS) if made else None
        missing = set(deltas or ())
        while made is not None:
            kept.add(made.checkpoint["id"])
            missing -= set(made.checkpoint["channel_values"])
            if not missing or made.parent_config is None:
                break
            made = self.get_tuple(made.parent_config)
        return kept


def _space(config: RunnableConfig) -> Space:
    about = config.get("configurable") or {}
    if about.get("thread_id") is None:
        raise BadInput("the config has no thread_id", hint='{"configurable": {"thread_id": ...}}')
    return Space(str(about["thread_id"]), str(about.get("checkpoint_ns") or ""))


def _config(space: Space, checkpoint_id: str | None = None) -> RunnableConfig:
    about = {"thread_id": space.thread, "checkpoint_ns": space.namespace}
    return {"configurable": about | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}
