"""A session driven by framed messages over a socket, as a program in any language would do it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast.model import fault_points
from holdfast.model.errors import BadInput, Denied, HoldfastError, NotFound
from holdfast.protocol.frames import FrameDecoder, encode_frame
from holdfast.protocol.values import decode_plain
from holdfast.session import Session
from holdfast.session.dialogue import serve
from holdfast.store import open_store


async def value(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


class Client:
    """Knows the frames and msgpack, and nothing of Holdfast's types."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder, self._arrived = FrameDecoder(), []

    def send(self, kind: str, **fields: object) -> None:
        self._writer.write(encode_frame(msgspec.msgpack.encode({"type": kind, **fields})))

    async def receive(self) -> dict[str, object] | None:
        while not self._arrived:
            data = await asyncio.wait_for(self._reader.read(1 << 16), 30)
            if not data:
                return None
            self._arrived += self._decoder.feed(data)
        return msgspec.msgpack.decode(self._arrived.pop(0))

    async def until(self, kind: str) -> tuple[dict[str, object], str]:
        """The next message of a kind, and the output before it."""
        output = ""
        while (message := await self.receive()) is not None:
            if message["type"] == "OutputMessage":
                output += message["text"]
            else:
                assert message["type"] == kind, message
                return message, output
        pytest.fail("the host has left")

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
async def client(session: Session, tmp_path: Path) -> AsyncIterator[Client]:
    path = str(tmp_path / "socket")
    server = await asyncio.start_unix_server(lambda r, w: serve(session, r, w), path)
    made = Client(*await asyncio.open_unix_connection(path))
    yield made
    made.close()
    server.close()


async def test_running_code(client: Client) -> None:
    client.send("ExecuteMessage", execution_id=71, code="print('a')\nx = 2\n(x, 'é')")
    result, output = await client.until("ResultMessage")
    assert (output, result["execution_id"], result["error"]) == ("a\n", 71, None)
    assert decode_plain(result["value"]) == (2, "é")
    client.send("ExecuteMessage", execution_id=72, code="object")
    result, _ = await client.until("ResultMessage")
    assert (result["value"], result["text"]) == (None, "<class 'object'>")
    client.send("ExecuteMessage", execution_id=73, code="1 / 0  # here")
    result, _ = await client.until("ResultMessage")
    assert result["error"]["error_type"] == "ZeroDivisionError"
    assert "1 / 0  # here" in result["error"]["traceback"]


async def test_input_and_interrupt(client: Client) -> None:
    client.send(
        "ExecuteMessage",
        execution_id=1,
        code="from getpass import getpass\n[getpass('word? '), input('name? ')][::-1]",
    )
    for prompt, password, answer in (("word? ", True, "pearl"), ("name? ", False, "Ada")):
        question, _ = await client.until("InputMessage")
        assert (question["prompt"], question["password"]) == (prompt, password)
        assert question["execution_id"] == 1
        client.send("InputResponseMessage", request_id=question["request_id"], text=answer)
    result, _ = await client.until("ResultMessage")
    assert decode_plain(result["value"]) == ["Ada", "pearl"]
    client.send("ExecuteMessage", execution_id=2, code="print('on')\nwhile True: pass")
    assert (await client.receive())["text"].startswith("on")
    client.send("InterruptMessage")
    result, _ = await client.until("ResultMessage")
    assert result["error"]["error_type"] == "KeyboardInterrupt"


async def test_freezing_and_bringing_back(client: Client, session: Session, tmp_path) -> None:
    for message in (
        ("ExecuteMessage", {"execution_id": 1, "code": "x = [1]"}),
        ("CheckpointMessage", {"request_id": 2, "reason": "here", "stage": "one"}),
        ("ExecuteMessage", {"execution_id": 3, "code": "x.append(2)"}),
    ):
        client.send(message[0], **message[1])
    await client.until("ResultMessage")
    replies = [await client.receive(), await client.receive()]  # the second cell need not wait
    created = next(each for each in replies if each["type"] == "CheckpointCreatedMessage")
    assert created["request_id"] == 2
    assert created["items"][0]["name"] == "x"
    (made,) = await session.list()
    assert (made.id, made.reason, made.stage) == (created["checkpoint_id"], "here", "one")
    client.send("RestoreMessage", request_id=4, checkpoint_id=made.id)
    restored, _ = await client.until("RestoredMessage")
    assert (restored["request_id"], restored["items"][0]["outcome"]) == (4, "exact")
    assert await value(session, "x") == [1]
    path = tmp_path / "frozen"
    await session.export(path)
    await session.execute("x = None")
    client.send("RestoreMessage", request_id=5, checkpoint_id=str(path))
    await client.until("RestoredMessage")
    assert await value(session, "x") == [1]
    for request, wrong in ((6, "0199ffff"), (7, "/nowhere/at/all")):
        client.send("RestoreMessage", request_id=request, checkpoint_id=wrong)
        error, _ = await client.until("ErrorMessage")
        assert (error["request_id"], error["error_type"]) == (request, "not_found")
    client.send("ShutdownMessage")
    client.send("ExecuteMessage", execution_id=8, code="1")
    await session.shutdown()
    client.send("CheckpointMessage", request_id=9)
    while (error := await client.receive())["request_id"] != 9:
        continue
    assert error["error_type"] == "usage"


async def test_a_client_that_leaves_or_talks_nonsense(client: Client, session: Session) -> None:
    client.send("ExecuteMessage", execution_id=1, code="x = input()")
    await client.until("InputMessage")
    client.send("Nonsense")
    while (error := await client.receive())["type"] != "ErrorMessage":
        continue
    assert error["error_type"] == "corrupt"
    while await client.receive() is not None:
        continue
    assert await value(session, "1") == 1  # nobody answers: the cell saw the end of input


# -- checkpoints in files -----------------------------------------------------------------


async def test_a_file_restores_into_another_session_and_store(make, tmp_path: Path) -> None:
    first = await make("first")
    await first.execute("def twice(n): return 2 * n\nrows = [1]")
    cp = await first.checkpoint()
    await first.execute("rows.append(2)")
    await first.checkpoint()
    path = tmp_path / "first.holdfast"
    assert (await first.export(path, cp)).id == cp.id
    other = await make("other", store=open_store(str(tmp_path / "store")))
    for given in (str(path), path):
        await other.execute("rows = None")
        report = await other.restore(given)
        assert report["rows"].outcome == "exact"
        assert await value(other, "[twice(4), rows]") == [8, [1]]
    made = await other.checkpoint()
    assert made.parents == (cp.id,)
    assert [each.id for each in await other.list()] == [made.id]
    with pytest.raises(NotFound, match="first checkpoint"):
        await other.rollback()
    # A session that came from a file survives its worker's death, too.
    third = await make("third")
    await third.restore(path)
    assert (await third.execute("import os\nos._exit(1)")).error.type == "WorkerDied"
    assert await value(third, "rows") == [1]


async def test_a_file_of_its_own_checkpoint_moves_the_head(session: Session, store, tmp_path):
    await session.execute("x = 1")
    cp = await session.checkpoint()
    await session.export(tmp_path / "one")
    await session.execute("x = 2")
    await session.checkpoint()
    await session.restore(tmp_path / "one")
    assert await value(session, "x") == 1
    assert store.head("session/work").id == cp.id


async def test_files_that_are_none(session: Session, tmp_path: Path) -> None:
    await session.execute("x = 1")
    cp = await session.checkpoint()
    await session.execute("x = 2")
    good = tmp_path / "good"
    await session.export(good, cp)
    data = bytearray(good.read_bytes())
    data[len(data) // 2] ^= 1
    for name, content in (("empty", b""), ("noise", b"\x00" * 500), ("bent", bytes(data))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(HoldfastError):
            await session.restore(tmp_path / name)
    with pytest.raises(NotFound):
        await session.restore("/nowhere/at/all")
    with pytest.raises(BadInput):
        await session.restore("/with\0zero")
    with pytest.raises(BadInput):
        await session.export(5)
    assert await value(session, "x") == 2


async def test_a_file_of_another_machine_needs_trust(
    make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await make("first")
    await first.execute("x = 1")
    await first.checkpoint()
    await first.export(tmp_path / "file")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "another home"))
    other = await make("other", store=open_store("memory://"))
    with pytest.raises(Denied):
        await other.restore(tmp_path / "file")
    await other.restore(tmp_path / "file", trust=True)
    assert await value(other, "x") == 1
    # It has been trusting it since: a crash does not ask again.
    assert (await other.execute("import os\nos._exit(1)")).error.type == "WorkerDied"
    assert await value(other, "x") == 1


async def test_client_is_told_of_any_failure(client: Client) -> None:
    """Also of one that is a fault of the host: the client would wait for its own timeout."""
    client.send("CheckpointMessage", request_id=1, reason="here", stage=None)
    made, _ = await client.until("CheckpointCreatedMessage")

    def fail(name: str) -> None:
        raise RuntimeError(f"at the step: {name}")

    fault_points.listen_everywhere(fail)
    try:
        client.send("RestoreMessage", request_id=2, checkpoint_id=made["checkpoint_id"])
        told, _ = await client.until("ErrorMessage")
    finally:
        fault_points.listen_everywhere(None)
    assert (told["request_id"], told["error_type"]) == (2, "fault")
    assert told["message"].startswith("RuntimeError: at the step")
