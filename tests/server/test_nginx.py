"""The load balancer of the guide, in front of two servers of one store."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import Starter
from tests.server.test_ports import SERVICE, answering

from holdfast import Sandbox
from holdfast.testing.servers import free_port

pytestmark = pytest.mark.soak
TOKEN = "one-token-for-both-servers"
FRAME = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{config}
}}
"""


@pytest.fixture
def front(start: Starter, repository: Path, tmp_path: Path) -> Iterator[str]:
    """Two servers behind nginx, configured as the guide says; its address."""
    program = shutil.which("nginx")
    assert program is not None, "nginx is not installed; `make setup-soak` installs it"
    servers = [start("--engine", "process", HOLDFAST_TOKEN=TOKEN) for _ in range(2)]
    guide = (repository / "docs/guides/several-servers.md").read_text()
    found = re.search(r"```nginx\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    port = free_port()
    config = found[1].replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    for name, server in zip(("server-1:8787", "server-2:8787"), servers, strict=True):
        assert name in config
        config = config.replace(name, server.address.removeprefix("http://"))
    (tmp_path / "nginx.conf").write_text(FRAME.format(folder=tmp_path, config=config))
    process = subprocess.Popen(
        [program, "-c", tmp_path / "nginx.conf", "-p", tmp_path, "-e", "stderr"],
        stderr=subprocess.PIPE,
        text=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 30
        while True:
            assert process.poll() is None, process.communicate()[1]
            try:
                httpx.get(f"{url}/status").raise_for_status()
                break
            except httpx.HTTPError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=20)


async def test_two_servers_behind_nginx(front: str) -> None:
    sandbox = await Sandbox.create(
        front, token=TOKEN, enable_checkpoint=True, enable_sandbox_handoff=True, ports=[8000]
    )
    # Whichever server each connection comes to: the sandbox is there, as it was left.
    for number in range(6):
        process = await sandbox.exec("bash", "cat /root/n 2>/dev/null || echo 0")
        assert await process.stdout.read_all() == f"{number}\n"
        await sandbox.files.write("/root/n", f"{number + 1}\n")
        name = sandbox.sandbox_id, sandbox.sandbox_token
        await sandbox.detach()
        sandbox = await Sandbox.attach(front, *name, token=TOKEN)
    # Output comes as it is written, not when a buffer is full.
    process = await sandbox.exec("bash", "echo first; read line; echo $line")
    assert await anext(aiter(process.stdout)) == "first\n"
    await process.write("second\n")
    assert await process.stdout.read_all() == "second\n"
    await sandbox.exec("python", SERVICE)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as client:
        url = f"{front}/v1/sandboxes/{sandbox.sandbox_id}/ports/8000/x"
        assert (await answering(client, url)).text.startswith("GET /x\n")
        assert (await client.post(f"{front}/handover/{sandbox.sandbox_id}")).status_code == 404
        streamed = await client.post(f"{front}/execute?language=bash", content="echo hi")
        assert streamed.text == "hi\n"
    await sandbox.kill()
