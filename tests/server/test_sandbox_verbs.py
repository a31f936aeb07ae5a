"""The verbs on live sandboxes over HTTP."""

from __future__ import annotations

import base64
import json

import pytest
from tests.server.conftest import Starter
from tests.server.sandbox_client import attach, created

from holdfast.cli.main import main


async def test_files_forks_rollback_and_snapshots(start: Starter) -> None:
    server = start("--engine", "process")
    wire = await created(server, enable_checkpoint=True, name="mine")
    one = f"/v1/sandboxes/{wire.identity[0]}"
    with server.client(server.token) as client:

        def files(verb: str, path: str, **more: object) -> dict[str, object]:
            answer = client.post(f"{one}/files", json={"verb": verb, "path": path, **more})
            told: dict[str, object] = answer.json()
            return told

        shown = client.get(one).json()
        assert (shown["name"], shown["attached"], shown["checkpoints"]) == ("mine", True, True)
        binary = base64.b64encode(b"\xff" * 200_000).decode()  # more than other bodies may have
        assert "error" not in files("write", "/root/a/x", data=binary, encoding="base64")
        assert files("read", "/root/a/x", encoding="base64")["data"] == binary
        [entry] = files("list", "/root/a")["entries"]  # type: ignore[misc]
        assert (entry["name"], entry["size"]) == ("x", 200_000)
        assert files("read", "/root/none")["error"]["kind"] == "not_found"  # type: ignore[index]
        assert client.post(f"{one}/files", json={"verb": "dance", "path": "/"}).status_code == 422

        first = client.post(f"{one}/checkpoint", json={"reason": "first"}).json()["checkpoint"]
        files("remove", "/root/a")
        [copy] = client.post(f"{one}/fork", json={"count": 1}).json()["sandboxes"]
        async with attach(server, (copy["id"], copy["token"])) as other:
            await other.until("RUNNING")
            assert await other.run("bash", "ls /root") == ""
            await other.send(action="kill_sandbox")
            await other.rest()
        assert client.post(f"{one}/rollback", json={"to": first["id"]}).status_code == 409
        await wire._socket.close()
        while client.get(one).json()["attached"]:
            pass
        back = client.post(f"{one}/rollback", json={"to": first["id"]})
        assert back.status_code == 200, back.text
        assert files("list", "/root/a")["entries"]
        kept = client.post(f"{one}/snapshot", json={"name": "with-a"}).json()["checkpoint"]
        assert kept["name"] == "snapshots/with-a"
        assert client.post(f"{one}/snapshot", json={"name": "../x"}).status_code == 422
        assert client.delete(one).json() == {"id": wire.identity[0]}
        for path in (one, f"{one}/files"):
            assert client.get(path).status_code in (404, 405)
        # It was killed; its checkpoint is good for another sandbox, which can be attached to.
        begun = client.post(f"/v1/checkpoints/{first['id']}/sandbox").json()["sandboxes"][0]
        async with attach(server, (begun["id"], begun["token"])) as other:
            await other.until("RUNNING")
            assert await other.run("bash", "wc -c < /root/a/x") == "200000\n"
            await other.send(action="kill_sandbox")
            await other.rest()
        files_only = client.post(f"/v1/checkpoints/{kept['id']}/sandbox")
        assert files_only.status_code == 400
        assert "filesystem_snapshot_name" in files_only.json()["error"]["hint"]
    new = await created(server, filesystem_snapshot_name="with-a")
    assert await new.run("bash", "ls /root/a") == "x\n"
    await new.send(action="kill_sandbox")
    await new.rest()


async def test_a_copy_by_the_command_line_can_be_attached_to(
    start: Starter, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start("--engine", "process")
    wire = await created(server, enable_checkpoint=True)
    await wire.run("bash", "echo mine > /root/x")
    await wire.send(action="snapshot_filesystem", name="base")
    await wire.until("FILESYSTEM_SNAPSHOT_CREATED")
    await wire.send(action="checkpoint")
    await wire.rest()
    subject = f"sandbox/{wire.identity[0]}"

    def fork(*words: str) -> tuple[int, str]:
        code = main(["fork", *words, "--json"])
        return code, capsys.readouterr().out

    code, told = fork(subject)
    [copy] = json.loads(told)["sandboxes"]
    assert (code, copy["id"] == wire.identity[0]) == (0, False)
    async with attach(server, (copy["id"], wire.identity[1])) as other:
        assert (await other.rest())[0] == ["PERMISSION_DENIAL_ERROR", "error"]
    async with attach(server, (copy["id"], copy["token"])) as other:
        assert await other.until("RUNNING") == ["RESTORING", "RUNNING"]
        assert await other.run("bash", "cat /root/x; echo other > /root/x") == "mine\n"
        await other.send(action="kill_sandbox")
        await other.rest()
    async with attach(server, wire.identity) as back:
        assert await back.until("RUNNING") == ["RESTORING", "RUNNING"]
        assert await back.run("bash", "cat /root/x") == "mine\n"
        await back.send(action="kill_sandbox")
        await back.rest()
    # What nobody could attach to is not made, whoever asks for it.
    assert fork(subject, "copy")[0] == 2
    assert fork("sandbox/snapshots/base", "copy")[0] == 2
    assert fork("sandbox/snapshots/base")[0] == 2
    assert fork("sandbox/snapshots/base", "snapshots/other")[0] == 0
    with server.client(server.token) as client:
        found = client.get("/v1/checkpoints", params={"limit": 1}).json()["checkpoints"][0]
        assert found["name"] == "snapshots/other"
        refused = client.post(f"/v1/checkpoints/{found['id']}/fork", json={"name": "copy"})
        assert (refused.status_code, refused.json()["error"]["hint"]) == (400, "snapshots/copy")
