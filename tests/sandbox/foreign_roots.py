"""Root file systems that are somebody else's, as folders, tars and OCI layouts."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path


def small_root(folder: Path) -> Path:
    """A root with a shell and its libraries, and no Python anywhere."""
    for program in ("/usr/bin/dash", "/usr/bin/cat"):
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+)", listed):
            place = folder / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
        (folder / "bin").mkdir(exist_ok=True)
        shutil.copy(program, folder / "bin" / Path(program).name)
    (folder / "bin" / "sh").symlink_to("dash")
    (folder / "etc").mkdir()
    (folder / "etc" / "whose").write_text("mine\n")
    return folder


def packed(folder: Path) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(folder, ".")
    return stream.getvalue()


def layout(folder: Path, *layers: bytes) -> Path:
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    listed = [blob(gzip.compress(layer), "layer.v1.tar+gzip") for layer in layers]
    manifest = blob(json.dumps({"layers": listed}).encode(), "manifest.v1+json")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    return folder
