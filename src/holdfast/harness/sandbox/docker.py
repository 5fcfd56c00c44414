"""A sandbox in a Docker container, controlled by the `docker` command.

The session's files are in a folder on this machine, mounted into the container. Tools read and
write files in that folder; commands run with `docker exec`. The daemon must see the same files as
this process.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct

from ...errors import InvalidValue, OutsideSandbox, SandboxError
from ...log.codec import check_choice
from ...log.events import Key, Scope, new_id
from .dockercli import DEAD, END, MISSING, TAKEN, DockerCli, flags, limits, mount, variables
from .folder import SandboxFolder
from .folder_sandbox import FolderPlace, FolderSandbox
from .port import Command, Ran, Reason, digest
from .process import MARK, Running

WORKSPACE = "/workspace"
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]{0,44}[a-z0-9])?")


class Mount(Struct, frozen=True, kw_only=True):
    """An extra mount in the container. A relative `source` is inside the session's own folder;
    an absolute path is trusted. `env` is the name of a variable that is set to `target` for
    commands.

    See [the sandbox](../sandbox.md).
    """

    source: str
    target: str
    read_only: bool = True
    env: str | None = None


Mounts: TypeAlias = Sequence[Mount] | Callable[[Key, Any], Sequence[Mount]]


class DockerSandbox(FolderSandbox):
    """A container for each session, created from `image` when it is first needed.

    `workspace` is a folder on this machine with one folder for each session; with `shared`, all
    sessions use it directly. It is mounted at /workspace. With `persistence` "workspace", closing
    the session removes the container and keeps the files; with "container", it stops the container
    and keeps the software that was installed in it. An existing container is used unchanged.
    Commands have no network unless `network` is set, and run as `user`, by default the user of this
    process. `mounts` are extra mounts, or a function of session and resources that returns them.

    See [the sandbox](../sandbox.md).
    """

    def __init__(
        self,
        image: str,
        workspace: str | os.PathLike[str],
        *,
        prefix: str = "holdfast",
        shared: bool = False,
        read_only: bool = False,
        mounts: Mounts = (),
        persistence: Literal["workspace", "container"] = "workspace",
        cpus: float | None = None,
        memory: str | None = None,
        pids: int = 512,
        network: str = "none",
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        output_limit: int = 1_000_000,
        kill_grace: float = 1.0,
        shell: str = "sh",
        docker_path: str = "docker",
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise InvalidValue(
                field="prefix",
                problem=f"is {prefix!r}",
                remedy="use 1 to 46 characters of a-z, 0-9 and -, with no - at either end",
                limit=46,
            )
        check_choice("persistence", persistence, ("workspace", "container"))
        super().__init__(Path(workspace), shared=shared)
        self._image = image
        self._prefix = prefix
        self._mounts = mounts
        self._limits = limits(cpus=cpus, memory=memory, pids=pids, network=network, user=user)
        self._env = variables(env or {})
        self.read_only = read_only
        self.keep = persistence == "container"
        self.timeout = timeout
        self.shell = shell
        self.cli = DockerCli(docker_path, limit=output_limit, grace=kill_grace)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._users: dict[str, int] = {}

    def name(self, scope: Scope) -> str:
        """Return the name of a session's container."""
        return f"{self._prefix}-{digest(scope)[:16]}"

    async def open(self, session: Key, *, agent: str, resources: Any) -> DockerPlace:
        name = self.name(session.scope)
        mounts = self._mounts(session, resources) if callable(self._mounts) else self._mounts
        folder = await asyncio.to_thread(self._folder, session.scope)
        arguments = await asyncio.to_thread(self._arguments, name, folder, mounts)
        place = DockerPlace(self, name, folder, arguments)
        async with self._lock(name):
            await place.start()
            self._users[name] = self._users.get(name, 0) + 1
        return place

    async def destroy(self, session: Scope) -> None:
        """Remove the session's container and its files. A shared workspace is not removed."""
        name = self.name(session)
        async with self._lock(name):
            await self.cli.call("rm", "--force", name, fine=MISSING)
        await super().destroy(session)

    async def leave(self, name: str, reason: Reason) -> None:
        """Release the container for one `DockerPlace`. After the last release in this process, the
        container is stopped or removed."""
        async with self._lock(name):
            self._users[name] = self._users.get(name, 1) - 1
            if self._users[name] > 0:
                return
            del self._users[name]
            if self.keep and reason == "close":
                await self.cli.call("stop", "-t", "1", name, fine=MISSING)
            else:
                await self.cli.call("rm", "--force", name, fine=MISSING)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _folder(self, scope: Scope) -> SandboxFolder:
        mine = self._dir if self._shared else self._sessions.of(scope)
        try:
            mine.mkdir(mode=0o700, parents=True, exist_ok=True)
            return SandboxFolder(str(mine.resolve()), seen_as=WORKSPACE)
        except OSError as error:
            raise SandboxError(problem=f"cannot create a folder: {error.strerror}") from error

    def _arguments(self, name: str, folder: SandboxFolder, mounts: Sequence[Mount]) -> list[str]:
        """Return the arguments of `docker create`."""
        env = {"HOME": WORKSPACE, **self._env}
        where = [mount(folder.path, WORKSPACE, read_only=self.read_only)]
        for each in mounts:
            where.append(mount(_source(folder, each), each.target, read_only=each.read_only))
            if each.env is not None:
                env |= variables({each.env: each.target})
        return [
            *("create", "--name", name, "--init", "--label", "holdfast.sandbox=1"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *self._limits,
            *flags("--mount", where),
            *("--workdir", WORKSPACE),
            *flags("--env", map("=".join, env.items())),
            *("--entrypoint", "tail", self._image, "-f", "/dev/null"),
        ]


class DockerPlace(FolderPlace):
    """The open sandbox of one session: a running container, and its folder on this machine."""

    folder = WORKSPACE

    def __init__(
        self, sandbox: DockerSandbox, name: str, folder: SandboxFolder, arguments: Sequence[str]
    ) -> None:
        super().__init__(folder, read_only=sandbox.read_only)
        self._sandbox = sandbox
        self._name = name
        self._arguments = arguments
        self._started = False

    async def start(self) -> None:
        """Create the container, unless it exists, and start it."""
        await self._sandbox.cli.call(*self._arguments, fine=TAKEN)
        await self._sandbox.cli.call("start", self._name)
        self._started = True

    async def _run(self, asked: Command) -> Ran:
        if not self._started:
            await self.start()
        mark = new_id()
        running = await self._exec(asked, mark)
        try:
            ran = await self._result(running)
        except asyncio.CancelledError:
            await self._end(mark)
            raise
        if ran.timed_out or self._closed:
            await self._end(mark)
        elif ran.exit_code == 1 and not ran.stdout and DEAD.match(ran.stderr):
            self._started = False  # the next command starts it again
            raise SandboxError(problem=ran.stderr.strip())
        return ran

    async def _exec(self, asked: Command, mark: str) -> Running:
        where = await asyncio.to_thread(self._enter, asked.cwd or ".")
        env = variables(asked.env)
        # Pass values in the environment, not as arguments, which every user of the machine can
        # see; except variables that docker itself would read.
        said = {name for name in env if name in os.environ or name.startswith("DOCKER_")}
        named = (f"{name}={env[name]}" if name in said else name for name in env)
        words = [
            *("exec", "--workdir", where, *flags("--env", [*named, f"{MARK}={mark}"])),
            *(["--interactive"] if asked.input else []),
            *(self._name, *asked.words(self._sandbox.shell)),
        ]
        return self._sandbox.cli.running(
            words,
            env={name: env[name] for name in env if name not in said},
            stdin=asked.input,
            timeout=asked.timeout or self._sandbox.timeout,
        )

    def _enter(self, cwd: str) -> str:
        with self._folder.enter(cwd, make=not self._sandbox.read_only) as (_, names):
            return str(PurePosixPath(WORKSPACE, names))

    async def _end(self, mark: str) -> None:
        """End a command inside the container. Killing only `docker exec` on this machine would
        leave the command running."""
        grace = f"{self._sandbox.cli.grace:g}"
        with suppress(SandboxError):  # the container no longer exists
            await self._sandbox.cli.call(
                "exec", self._name, "sh", "-c", END, "sh", MARK, mark, grace
            )

    async def close(self, reason: Reason) -> None:
        if self._closed:
            return
        self._stop()
        await self._sandbox.leave(self._name, reason)


def _source(folder: SandboxFolder, mount: Mount) -> str:
    if mount.source.startswith("/"):
        return mount.source
    found = os.path.realpath(os.path.join(folder.path, mount.source))
    if os.path.commonpath([found, folder.path]) != folder.path:
        raise OutsideSandbox(path=mount.source)
    return found
