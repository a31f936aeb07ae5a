"""A containerd of its own for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.containerd import Node


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    try:
        yield node
    finally:
        node.close()


@pytest.fixture
def node(shared_node: Node) -> Iterator[Node]:
    """The module's containerd, with the default policy; afterwards nothing may be left behind."""
    shared_node.set_policy("")
    yield shared_node
    for name in shared_node.ctr("container", "ls", "-q").stdout.split():
        shared_node.remove(name)
    assert shared_node.leftovers() == []
