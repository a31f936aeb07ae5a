"""A LangGraph graph whose threads are kept by Holdfast: time travel, a fork, and going on later.

python examples/langgraph_agent.py [STORE]
"""

from __future__ import annotations

import operator
import sys
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph

from holdfast import open_store
from holdfast.integrations.langgraph import HoldfastSaver


class Draft(TypedDict):
    """What the graph works on."""

    topic: str
    tone: str
    lines: Annotated[list[str], operator.add]


def outline(state: Draft) -> dict[str, list[str]]:
    return {"lines": [f"an outline about {state['topic']}"]}


def write(state: Draft) -> dict[str, list[str]]:
    return {"lines": [f"a {state['tone']} text from {state['lines'][-1]!r}"]}


def review(state: Draft) -> dict[str, list[str]]:
    return {"lines": [f"reviewed: {len(state['lines'])} lines"]}


def graph(saver: HoldfastSaver):  # type: ignore[no-untyped-def]  # a compiled graph
    steps = StateGraph(Draft)
    for node in (outline, write, review):
        steps.add_node(node.__name__, node)
    steps.add_edge(START, "outline")
    steps.add_edge("outline", "write")
    steps.add_edge("write", "review")
    steps.add_edge("review", END)
    return steps.compile(checkpointer=saver)


def main(address: str | None = None) -> None:
    with open_store(address) as store:
        app = graph(HoldfastSaver(store))
        thread = {"configurable": {"thread_id": "essay"}}
        done = app.invoke({"topic": "anchors", "tone": "dry", "lines": []}, thread)
        print(done["lines"][-1])

        # Time travel: back to the moment before `write`, and from there with another tone.
        before_writing = next(
            each for each in app.get_state_history(thread) if each.next == ("write",)
        )
        other = app.update_state(before_writing.config, {"tone": "cheerful"})
        again = app.invoke(None, other)
        print(again["lines"][1])
        assert "cheerful" in again["lines"][1]

        # A fork by Holdfast: the same moment as a thread of its own. The first one stays as it is.
        store.fork("state/langgraph/essay", "langgraph/essay-copy")
        copy = {"configurable": {"thread_id": "essay-copy"}}
        assert app.get_state(copy).values == again
        app.update_state(copy, {"lines": ["only in the copy"]})
        assert app.get_state(thread).values == again
        print(f"the copy has {len(app.get_state(copy).values['lines'])} lines")

        # And a rollback by Holdfast: the thread is where it was one step before.
        store.rollback("state/langgraph/essay")
        print(f"rolled back to before {app.get_state(thread).next[0]}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
