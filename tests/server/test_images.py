"""Sandboxes in images that whoever starts the server names: an OCI layout, and a tar."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sandbox.foreign_roots import layout, packed, small_root
from tests.server.conftest import Server, Starter
from tests.server.sandbox_client import Wire, attach, created


async def say(wire: Wire, *argv: str) -> str:
    start = len(wire.heard)
    await wire.send(argv=list(argv))
    await wire.until("EXECUTION_DONE")
    return wire.output(start)


async def end(wire: Wire) -> None:
    await wire.send(action="kill_sandbox")
    await wire.rest()


@pytest.fixture
def images(tmp_path: Path) -> list[str]:
    """Options of a server: the same root twice, each with a file that says whose it is."""
    root = small_root(tmp_path / "root")
    (root / "etc" / "whose").write_text("of the layout\n")
    laid = layout(tmp_path / "layout", packed(root))
    (root / "etc" / "whose").write_text("of the tar\n")
    tar = tmp_path / "root.tar"
    tar.write_bytes(packed(root))
    return ["--image", f"small={laid}", "--image", f"t={tar}"]


@pytest.mark.parametrize("engine", ["process", "gvisor"])
async def test_a_sandbox_runs_in_the_image_it_asks_for(
    start: Starter, images: list[str], engine: str
) -> None:
    server: Server = start("--engine", engine, "--pool", "0", *images)
    for name, told in (("small", "of the layout\n"), ("t", "of the tar\n")):
        wire = await created(server, image=name, enable_checkpoint=True)
        assert await say(wire, "/bin/cat", "/etc/whose") == told
        # There is no Python, and what is not its own it cannot write.
        assert await say(wire, "/bin/sh", "-c", "test -e /usr/bin/python3 || echo none") == "none\n"
        await say(wire, "/bin/sh", "-c", f"echo {name} > /root/kept; echo mine > /etc/whose")
        await wire.send(action="checkpoint")
        await wire.rest()
        async with attach(server, wire.identity) as back:  # in the same image, with its files
            await back.until("RUNNING")
            assert await say(back, "/bin/cat", "/root/kept", "/etc/whose") == f"{name}\n{told}"
            await end(back)
