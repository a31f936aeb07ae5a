"""The saver for LangGraph: its own conformance suite, real graphs, real processes."""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from holdfast.integrations.langgraph import HoldfastSaver, records
from holdfast.model.errors import BadInput, Corrupt, Unsupported
from holdfast.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def saver(store: Store) -> HoldfastSaver:
    return HoldfastSaver(store)


def thread(name: str = "t", **more: str) -> Any:
    return {"configurable": {"thread_id": name, "checkpoint_ns": "", **more}}


def put(saver: HoldfastSaver, config: Any, **values: Any) -> Any:
    checkpoint = {**empty_checkpoint(), "channel_values": values}
    return saver.put(config, checkpoint, {"source": "loop", "step": 1}, {})  # type: ignore[arg-type]


async def test_all_of_the_conformance_suite(tmp_path: Path) -> None:
    @checkpointer_test(name="Holdfast")
    async def on_a_store() -> AsyncIterator[HoldfastSaver]:
        with open_store(tmp_path / os.urandom(8).hex()) as opened:
            yield HoldfastSaver(opened)

    found = (await validate(on_a_store)).to_dict()
    results = found["results"].values()
    failures = [name for each in results for name in each["failures"]]
    assert failures == []
    assert sum(each["tests_passed"] for each in results) == 81
    assert found["conformance_level"] == "FULL"


# real graphs


class Talk(TypedDict):
    messages: Annotated[list[Any], operator.add]
    count: int


def answer(state: Talk) -> dict[str, Any]:
    return {"messages": [AIMessage(f"answer {state['count']}")], "count": state["count"] + 1}


def talking(saver: HoldfastSaver, *nodes: Any) -> Any:
    graph = StateGraph(Talk)
    names = [f"{node.__name__}{at}" for at, node in enumerate(nodes)]
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    for one, other in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(one, other)
    return graph.compile(checkpointer=saver)


def test_a_conversation_goes_on_in_another_process(saver: HoldfastSaver, tmp_path: Path) -> None:
    app = talking(saver, answer)
    app.invoke({"messages": [HumanMessage("hello")], "count": 0}, thread())
    with open_store(tmp_path / "store") as again:
        app = talking(HoldfastSaver(again), answer)
        done = app.invoke({"messages": [HumanMessage("and?")]}, thread())
    assert [type(each) for each in done["messages"]] == [HumanMessage, AIMessage] * 2
    assert [each.content for each in done["messages"]] == ["hello", "answer 0", "and?", "answer 1"]


async def test_the_same_awaited(saver: HoldfastSaver) -> None:
    app = talking(saver, answer, answer)
    done = await app.ainvoke({"messages": [], "count": 0}, thread())
    assert done["count"] == 2
    history = [each async for each in app.aget_state_history(thread())]
    assert [each.values.get("count") for each in history] == [2, 1, 0, None]
    assert (await app.aget_state(thread())).values == done


def test_time_travel_and_forks(saver: HoldfastSaver, store: Store) -> None:
    app = talking(saver, answer, answer)
    app.invoke({"messages": [], "count": 0}, thread())
    middle = next(each for each in app.get_state_history(thread()) if each.values.get("count") == 1)
    replayed = app.invoke(None, middle.config)
    assert replayed["count"] == 2
    branch = app.update_state(middle.config, {"count": 10})
    assert app.invoke(None, branch)["count"] == 11
    # The line on the store has the same branches.
    parents = {each.id: each.parents for each in store.list("state/langgraph/t")}
    assert len([1 for each in parents.values() if not each]) == 1
    assert max(sum(id_ in each for each in parents.values()) for id_ in parents) >= 3


def test_holdfast_rolls_back_and_forks_threads(saver: HoldfastSaver, store: Store) -> None:
    app = talking(saver, answer, answer)
    done = app.invoke({"messages": [], "count": 0}, thread())
    store.fork("state/langgraph/t", "langgraph/copy")
    assert app.get_state(thread("copy")).values == done
    store.rollback("state/langgraph/t")
    assert app.get_state(thread()).values["count"] == 1
    assert app.get_state(thread()).next == ("answer1",)
    assert app.invoke(None, thread())["count"] == 2
    assert app.get_state(thread("copy")).values == done
    diff = store.diff("state/langgraph/t~1", "state/langgraph/t")
    assert "channel/count" in {each.path for each in diff.values}


def test_an_interrupted_graph_waits_for_its_answer(saver: HoldfastSaver, tmp_path: Path) -> None:
    def ask(state: Talk) -> dict[str, Any]:
        return {"messages": [interrupt("how many?")], "count": 1}

    talking(saver, ask).invoke({"messages": [], "count": 0}, thread())
    with open_store(tmp_path / "store") as again:
        app = talking(HoldfastSaver(again), ask)
        assert app.get_state(thread()).interrupts[0].value == "how many?"
        assert app.invoke(Command(resume="three"), thread())["messages"] == ["three"]


def test_subgraphs_have_namespaces_of_their_own(saver: HoldfastSaver, store: Store) -> None:
    inner = StateGraph(Talk)
    inner.add_node("answer", answer)
    inner.add_edge(START, "answer")
    inner.add_edge("answer", END)
    outer = StateGraph(Talk)
    outer.add_node("inner", inner.compile(checkpointer=True))
    outer.add_edge(START, "inner")
    outer.add_edge("inner", END)
    app = outer.compile(checkpointer=saver)
    app.invoke({"messages": [], "count": 0}, thread())
    subjects = {str(each.subject) for each in store.subjects()}
    assert "state/langgraph/t/ns/inner" in subjects
    saver.delete_thread("t")
    assert store.list() == []


def test_what_did_not_change_is_stored_once(saver: HoldfastSaver, store: Store) -> None:
    config = thread()
    messages = [{"id": n, "text": os.urandom(1000).hex()} for n in range(200)]
    config = put(saver, config, messages=messages)
    put(saver, config, messages=[*messages, {"id": 200, "text": "new"}])
    new, old = store.list("state/langgraph/t")
    assert new.stored_bytes < old.stored_bytes / 50


# what comes back


@dataclass
class Point:
    x: int


VALUES = {
    "none": None,
    "nan": float("inf"),
    "big": 2**100,
    "bytes": b"\0\xff",
    "tuple": [1, (2, 3)],
    "set": {1, 2},
    "keys": {1: "a", "$typed": 2},
    "typed": {"$typed": ["msgpack", b"x"]},
    "text": "größe",
    "deep": [[[[[{"a": [1]}]]]]],
    "message": HumanMessage("hi", id="1"),
}


def test_values_come_back_as_langgraph_gives_them(saver: HoldfastSaver, tmp_path: Path) -> None:
    put(saver, thread(), **VALUES)
    plain = JsonPlusSerializer()
    wanted = {
        name: value if name == "big" else plain.loads_typed(plain.dumps_typed(value))
        for name, value in VALUES.items()
    }
    with open_store(tmp_path / "store") as again:
        for each in (saver, HoldfastSaver(again)):
            found = each.get_tuple(thread())
            assert found is not None
            assert found.checkpoint["channel_values"] == wanted


def test_only_what_is_allowed_is_rebuilt(saver: HoldfastSaver, store: Store) -> None:
    put(saver, thread(), point=Point(1), message=AIMessage("a"))
    values = saver.get_tuple(thread()).checkpoint["channel_values"]  # type: ignore[union-attr]
    assert not isinstance(values["point"], Point)
    assert isinstance(values["message"], AIMessage)
    allowing = HoldfastSaver(store, types=[Point])
    assert allowing.get_tuple(thread()).checkpoint["channel_values"]["point"] == Point(1)  # type: ignore[union-attr]


def test_a_store_cannot_make_us_run_anything(store: Store, tmp_path: Path) -> None:
    """Somebody with our key writes a record that would call os.system when it is rebuilt."""
    import ormsgpack

    target = tmp_path / "made"
    for code in range(8):
        evil = ormsgpack.packb(("os", "system", f"touch {target}", "__call__"))
        data = ormsgpack.packb(ormsgpack.Ext(code, evil))
        record = {
            "langgraph": 1,
            "parent": None,
            "typed": True,
            "checkpoint": {
                **empty_checkpoint(),
                "channel_values": {"x": {"$typed": ["msgpack", data]}},
            },
            "metadata": {"p": {"$typed": ["pickle", b"cos\nsystem\n(S'true'\ntR."]}}
            if code == 7
            else {},
        }
        with store.draft(f"state/langgraph/evil{code}", tags={"langgraph": "x"}) as draft:
            draft.put("state", record, split="structure")
            draft.commit()
        with contextlib.suppress(NotImplementedError):  # of the pickle
            HoldfastSaver(store).get_tuple(thread(f"evil{code}"))
    assert not target.exists()


def test_records_that_something_else_wrote(store: Store, saver: HoldfastSaver) -> None:
    for name, value, error in (
        ("other", {"a": 1}, Corrupt),
        ("list", [1], Corrupt),
        ("half", {"langgraph": 1, "checkpoint": {}}, Corrupt),
        ("newer", {"langgraph": 99}, Unsupported),
    ):
        with store.draft(f"state/langgraph/{name}") as draft:
            draft.put("state", value, split="structure")
            draft.commit()
        with pytest.raises(error):
            saver.get_tuple(thread(name))
    assert list(saver.list(thread("other"))) == []


# names, and what is asked wrongly


NAMES = [
    ".",
    "..",
    "%",
    "%25",
    "a/b",
    "ns",
    "a/ns/b",
    "writes",
    "a~1",
    "x@y",
    "*?[]",
    "a%2Fb",
    "größe\u2003语",
    "état",
    "a\\b",
]


@pytest.mark.parametrize(
    "name",
    ["", "\n", *NAMES, "a" * 400, "é" * 300, "a" * 400 + "b"],
)
def test_threads_may_have_any_name(saver: HoldfastSaver, name: str) -> None:
    others = ["other", "a", "b", name + "x"]
    for each in (name, *others):
        for namespace in ("", "child:1|x", name):
            config = put(saver, thread(each, checkpoint_ns=namespace), me=[each, namespace])
            saver.put_writes(config, [("ch", each)], "task")
    for namespace in ("", "child:1|x", name):
        found = saver.get_tuple(thread(name, checkpoint_ns=namespace))
        assert found is not None
        assert found.checkpoint["channel_values"]["me"] == [name, namespace]
        assert found.pending_writes == [("task", "ch", name)]
    wanted = {"configurable": {"thread_id": name}}
    listed = {each.config["configurable"]["checkpoint_ns"] for each in saver.list(wanted)}  # type: ignore[arg-type]
    assert listed == {"", "child:1|x", name}
    assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == {
        name,
        *others,
    }
    saver.delete_thread(name)
    assert saver.get_tuple(thread(name)) is None
    assert all(saver.get_tuple(thread(each)) for each in others)


def test_one_unreadable_thread_hides_no_others(
    store: Store, saver: HoldfastSaver, caplog: pytest.LogCaptureFixture
) -> None:
    """The subject of a long name says only a part of it; its checkpoints say the rest."""
    long = "n" * 2000
    for name in (long, "short"):
        put(saver, thread(name), n=1)
    (cut,) = (each.subject for each in store.subjects() if len(each.subject.name) > 50)
    with store.draft(cut, reason="not LangGraph's") as draft:
        draft.put("state", {"something": "else"}, split="structure")
        draft.commit()
    found = [each.config["configurable"]["thread_id"] for each in saver.list(None)]
    assert found == ["short"]
    assert str(cut) in caplog.text
    saver.delete_thread("short")
    assert list(saver.list(None)) == []


def test_numbers_as_names(saver: HoldfastSaver) -> None:
    put(saver, {"configurable": {"thread_id": 7}}, x=1)
    assert saver.get_tuple(thread("7")) is not None


def test_wrong_questions(saver: HoldfastSaver, store: Store) -> None:
    for nobody in ({}, {"configurable": {}}, {"configurable": {"thread_id": None}}):
        with pytest.raises(BadInput, match="thread_id"):
            saver.get_tuple(nobody)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="checkpoint_id"):
        saver.put_writes(thread(), [], "task")
    with pytest.raises(BadInput, match="strategy"):
        saver.prune(["t"], strategy="some")
    with pytest.raises(BadInput, match="types="):
        HoldfastSaver(store, types=[Point], serde=JsonPlusSerializer())


def test_a_checkpoint_that_is_put_again_takes_the_place_of_the_first(
    saver: HoldfastSaver, store: Store
) -> None:
    checkpoint = {**empty_checkpoint(), "channel_values": {"n": 1}}
    saver.put(thread(), checkpoint, {}, {})  # type: ignore[arg-type]
    saver.put(thread(), {**checkpoint, "channel_values": {"n": 2}}, {}, {})  # type: ignore[arg-type,typeddict-item]
    assert [each.checkpoint["channel_values"]["n"] for each in saver.list(thread())] == [2]
    assert store.count("state/langgraph/t") == 1


def test_of_those_who_put_one_checkpoint_at_once_the_last_one_stays(
    saver: HoldfastSaver, store: Store
) -> None:
    checkpoint = {**empty_checkpoint(), "channel_values": {"n": 0}}

    def put_again(n: int) -> None:
        saver.put(thread(), {**checkpoint, "channel_values": {"n": n}}, {}, {})  # type: ignore[arg-type,typeddict-item]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put_again, range(24)))
    (left,) = store.list("state/langgraph/t")
    assert left == store.head("state/langgraph/t")
    assert saver.get_tuple(thread()).checkpoint["id"] == checkpoint["id"]  # type: ignore[union-attr]


def test_a_parent_that_another_process_put_again_is_still_the_parent(
    saver: HoldfastSaver, store: Store, tmp_path: Path
) -> None:
    checkpoint = {**empty_checkpoint(), "channel_values": {"n": 1}}
    config = saver.put(thread(), checkpoint, {}, {})  # type: ignore[arg-type]
    with open_store(tmp_path / "store") as theirs:
        HoldfastSaver(theirs).put(thread(), checkpoint, {}, {})  # type: ignore[arg-type]
    put(saver, config, n=2)
    newest, again = store.list("state/langgraph/t")
    assert newest.parents == (again.id,)


def test_what_others_drop_is_gone_here_too(saver: HoldfastSaver, store: Store) -> None:
    config = put(saver, thread(), n=1)
    put(saver, config, n=2)
    assert len(list(saver.list(thread()))) == 2
    store.delete(store.list("state/langgraph/t")[-1])
    assert [each.checkpoint["channel_values"]["n"] for each in saver.list(thread())] == [2]
    assert saver.get_tuple(config) is None


def test_pruning_keeps_what_delta_channels_are_rebuilt_from(saver: HoldfastSaver) -> None:
    config = thread()
    for n in range(5):
        values = {"log": ["snapshot"]} if n == 2 else {"n": n}
        checkpoint = {**empty_checkpoint(), "channel_values": values}
        about = {"step": n, "counters_since_delta_snapshot": {"log": (n, n)}}
        config = saver.put(config, checkpoint, about, {})  # type: ignore[arg-type]
        saver.put_writes(config, [("log", f"w{n}")], f"task{n}")
    saver.prune(["t"])
    assert sorted(each.metadata["step"] for each in saver.list(thread())) == [2, 3, 4]
    history = saver.get_delta_channel_history(config=thread(), channels=["log"])["log"]
    assert history["seed"] == ["snapshot"]
    assert [each[2] for each in history["writes"]] == ["w2", "w3"]


def test_a_thread_of_the_first_format_is_read_and_goes_on(saver: HoldfastSaver) -> None:
    old = {**empty_checkpoint(), "id": "0001", "channel_values": {"n": 1, "rows": [{"a": 1}]}}
    record = {"langgraph": 1, "parent": None, "checkpoint": old, "metadata": {}, "typed": False}
    with saver.store.draft("state/langgraph/t", tags={"langgraph": "0001"}) as draft:
        draft.put("state", record, split="structure")
        draft.commit()
    found = saver.get_tuple(thread())
    assert found is not None
    assert found.checkpoint == old
    new = {**old, "id": "0002", "channel_values": {"n": 2, "rows": [{"a": 1}, {"a": 2}]}}
    saver.put(found.config, new, {}, {})  # type: ignore[arg-type,typeddict-item]
    values = [each.checkpoint["channel_values"] for each in saver.list(thread())]
    assert values == [new["channel_values"], old["channel_values"]]
    saver.copy_thread("t", "u")
    assert [each.checkpoint["id"] for each in saver.list(thread("u"))] == ["0002", "0001"]


@pytest.mark.parametrize(
    ("checkpoint_id", "time"),
    [
        ("1f1e126b-28f6-6222-80c8-72fb5e975fe7", "2026-01-01T00:00:00+00:00"),
        ("1F1E126B-28F6-6222-80C8-72FB5E975FE7", "2026-01-01T00:00:00.000001+00:00"),
        ("1f1e126b28f6622280c872fb5e975fe7", "2026-01-01T01:00:00+01:00"),
        ("0001", "2026-01-01 00:00:00"),
        ("x", "yesterday"),
        ("x", ""),
        ("x", 1767225600),
        (b"x" * 16, "2026-01-01T00:00:00+00:00"),
    ],
)
def test_records_are_short_and_say_all(checkpoint_id: str, time: Any) -> None:
    checkpoint = {"v": 4, "id": checkpoint_id, "ts": time, "channel_values": {"n": [1]}}
    for typed in (True, False):
        record = {
            "langgraph": 1,
            "parent": checkpoint_id,
            "checkpoint": checkpoint,
            "metadata": {"source": "loop"},
            "typed": typed,
        }
        assert records.expand(records.compact(record)) == record
    assert records.expand({"langgraph": 4}) is None
    flat = {"langgraph": 2, "checkpoint": {"id": "1"}, "channel/n": 5, "typed": True}
    nested = {"id": "1", "channel_values": {"n": 5}}
    assert records.expand(flat) == {"langgraph": 1, "checkpoint": nested, "typed": True}


# processes

RUNNER = """
import sys, operator
from typing import Annotated, TypedDict
from langgraph.graph import END, START, StateGraph
from holdfast.integrations.langgraph import HoldfastSaver
class State(TypedDict):
    steps: Annotated[list, operator.add]
def step(state):
    return {"steps": [len(state["steps"])]}
graph = StateGraph(State)
graph.add_node("step", step)
graph.add_edge(START, "step")
graph.add_conditional_edges("step", lambda s: "step" if len(s["steps"]) < 100000 else END)
app = graph.compile(checkpointer=HoldfastSaver(sys.argv[1]))
config = {"configurable": {"thread_id": "t"}, "recursion_limit": 200000}
print("ready", flush=True)
known = app.get_state(config).values
for chunk in app.stream(None if known else {"steps": []}, config, durability="sync"):
    print(chunk["step"]["steps"][0], flush=True)
"""


@pytest.mark.parametrize("rounds", [4, pytest.param(40, marks=pytest.mark.soak)])
def test_a_graph_that_is_killed_goes_on_where_it_was(tmp_path: Path, rounds: int) -> None:
    place = tmp_path / "store"
    reached = 0
    for number in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, place], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        for _ in range(3):  # steps, of which the last one may be lost
            process.stdout.readline()
        time.sleep(0.05 + 0.03 * number)
        os.kill(process.pid, signal.SIGKILL)
        seen = [int(line) for line in process.communicate()[0].split()]
        with open_store(place) as store:
            # An entry that was cut off is reported until the next append; nothing depends on it.
            assert not any(problem.affects for problem in store.verify().problems)
            steps = HoldfastSaver(store).get_tuple(thread()).checkpoint["channel_values"]["steps"]  # type: ignore[union-attr]
        # Every step was done exactly once, and none that was told of is lost but perhaps the last.
        assert steps == list(range(len(steps)))
        assert len(steps) >= max(seen, default=0)
        assert len(steps) >= reached
        reached = len(steps)
    assert reached > rounds


def test_two_processes_on_two_threads_of_one_store(tmp_path: Path) -> None:
    code = RUNNER.replace("100000", "15").replace('"t"', "sys.argv[2]")
    running = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path / "s", name], stdout=subprocess.PIPE)
        for name in ("a", "b")
    ]
    for each in running:
        each.communicate(timeout=60)
        assert each.returncode == 0
    with open_store(tmp_path / "s") as store:
        saver = HoldfastSaver(store)
        for name in ("a", "b"):
            found = saver.get_tuple(thread(name))
            assert found is not None
            assert found.checkpoint["channel_values"]["steps"] == list(range(15))
        assert store.verify(deep=True).ok
