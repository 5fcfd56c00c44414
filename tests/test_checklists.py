"""The checklists of CONTRIBUTING.md: a step that is forgotten fails here, if no test of its own
area names it. What needs nothing is listed, so that leaving it out is a decision."""

from __future__ import annotations

import ast
import inspect
import os
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from litestar.handlers import HTTPRouteHandler

from holdfast import Harness, InvalidValue, events
from holdfast.bundle.redaction.fields import listed
from holdfast.events import KINDS
from holdfast.log.catalog.encrypted_preview import CLEAR
from holdfast.log.search import SEARCHED
from holdfast.log.state.fold import STEPS
from holdfast.server import routes
from holdfast.server.app import ROUTES
from holdfast.stores.file import FileStore
from holdfast.stores.registry import SCHEMES
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.url_display import place
from holdfast.stores.url_options import OPTIONS
from holdfast.values.display import Display
from tests import contracts, servers, test_architecture
from tests.bundle.core import scene as bundle_scene
from tests.client import test_operations
from tests.compat import write
from tests.contract import test_stores
from tests.copy import scene as copy_scene
from tests.crash import places as crash_places
from tests.harness import test_settings
from tests.harness.session import test_laws as display_laws
from tests.harness.session import test_reducer
from tests.links import places as links_places
from tests.sessions import test_laws
from tests.vault import hands, test_around

ROOT = Path(__file__).parent.parent
ADAPTERS = [path.parent.name for path in sorted(ROOT.glob("src/holdfast/adapters/*/__init__.py"))]

# Kinds that change a row, the display or nothing, but not the state of a log.
CHANGE_NO_STATE = {
    "label.added",
    "label.removed",
    "progress.reported",
    "session.held",
    "session.moved",
    "session.pinned",
    "session.resumed",
    "session.suspended",
    "session.timed",
    "session.touched",
    "surface.attached",
    "surface.delivered",
    "surface.detached",
    "surface.failed",
    "surface.hooked",
    "surface.unhooked",
    "thread.renamed",
    "run.charged",
    "run.warned",
}

# Which readers of a log look at which kinds; the others have neither text nor decisions for them.
READERS = {
    "session.created": "search",
    "thread.created": "search",
    "thread.forked": "search transcript",
    "thread.renamed": "search",
    "thread.rewound": "transcript",
    "message.received": "search transcript audit",
    "message.completed": "search transcript audit",
    "message.interrupted": "search transcript",
    "run.started": "transcript audit",
    "run.finished": "search transcript",
    "model.called": "transcript audit",
    "tool.started": "transcript audit",
    "tool.nested": "audit",
    "tool.finished": "search transcript audit",
    "pending.opened": "search audit",
    "pending.voted": "audit",
    "pending.settled": "audit",
    "queue.changed": "transcript",
    "context.added": "search",
    "compaction.made": "search",
    "tool.probed": "transcript audit",
}
UNREAD = """
session.touched session.suspended session.resumed session.expired session.pinned
session.held session.timed session.moved session.reopened session.adopted
thread.reported label.added label.removed metadata.changed surface.attached
surface.detached run.resumed run.waiting abort.requested progress.reported pending.warned
pending.extended mode.changed model.changed state.changed permission.changed grant.given
grant.revoked task.changed context.built context.removed timer.set timer.cleared
timer.fired timer.planned checkpoint.made checkpoint.dropped timer.scheduled timer.unscheduled
timer.paused timer.ticked
run.charged run.warned
surface.hooked surface.unhooked surface.delivered surface.failed
"""

# Texts of events that bundles keep as they are, because they are ids or names and not content.
KEPT_TEXTS = """
abort.requested.run checkpoint.dropped.id checkpoint.made.id compaction.made.model context.added.id
context.added.on context.built.mode context.removed.ids grant.given.category grant.given.tool
grant.revoked.category grant.revoked.tool message.completed.model message.completed.reason
message.interrupted.model message.interrupted.reason message.received.model message.received.thread
mode.changed.left
mode.changed.mode model.called.model model.changed.mode model.changed.model pending.extended.id
pending.opened.call pending.opened.id pending.settled.id pending.voted.id pending.warned.id
progress.reported.call run.finished.code run.started.model run.waiting.reason
session.adopted.agent session.created.agent
session.touched.surface surface.attached.surface surface.detached.surface thread.created.agent
thread.created.call thread.created.item thread.created.parent thread.forked.agent thread.forked.call
thread.forked.item thread.forked.parent thread.reported.item timer.cleared.id timer.fired.id
timer.paused.name timer.scheduled.cron timer.scheduled.name timer.scheduled.timezone
timer.set.id timer.ticked.name timer.unscheduled.name
tool.finished.call tool.finished.code tool.nested.parent tool.started.call
tool.started.key tool.started.name tool.probed.call
"""

# Texts of events that a search does not look at: names, reasons, and what another event also holds.
UNSEARCHED = """
abort.requested.reason checkpoint.made.label context.built.messages
context.built.system label.added.label label.removed.label message.completed.thought
metadata.changed.drop metadata.changed.reason mode.changed.reason pending.opened.risk
pending.settled.channel pending.settled.reason pending.voted.channel
pending.voted.reason run.finished.stack run.resumed.reason session.created.labels
session.adopted.reason
session.created.workspace session.expired.reason session.held.hold
session.held.reason session.moved.to session.pinned.reason session.reopened.reason
session.resumed.reason session.suspended.reason session.timed.reason session.touched.reason
state.changed.drop surface.attached.reason surface.detached.reason thread.rewound.first
timer.scheduled.text timer.set.text tool.probed.reason
run.warned.budget run.warned.measure
surface.hooked.agents surface.hooked.kinds surface.hooked.labels surface.hooked.reason
surface.hooked.secret surface.hooked.url surface.unhooked.reason surface.delivered.log
surface.delivered.session surface.delivered.thread surface.failed.error surface.failed.log
surface.failed.session surface.failed.thread
"""

# Content that an encrypted store keeps in clear text, because lists and queries go by it.
CLEAR_TEXTS = """
label.added.label label.removed.label metadata.changed.drop metadata.changed.set
pending.opened.assignee pending.opened.risk session.created.labels session.created.metadata
session.created.user session.created.workspace session.moved.to surface.attached.address
surface.attached.detail surface.detached.address thread.rewound.window
"""

# Fields of a display that only `reduce` uses.
FOR_REDUCE = {"said", "open", "modes", "default", "state"}

# Scopes of routes that change nothing; `bundles` and `webhooks` are for reading and for writing.
READING = {"sessions:read", "files:read"}

# The stores that are opened with the options of their URL as arguments.
LOCAL: dict[str, Any] = {"file": FileStore, "sqlite": SqliteStore}
INNER = {"project", "clock"}  # arguments that are no options of a URL

# Settings of a harness of which every value is right, or that are checked by a test of their own.
UNCHECKED = {"agent", "default_model", "resources"}
OLD = {"storage"}  # another name of a setting, from an earlier version


def test_every_kind_changes_the_state_or_is_listed() -> None:
    assert KINDS.keys() - STEPS.keys() == CHANGE_NO_STATE
    assert STEPS.keys() <= KINDS.keys()


def test_every_kind_is_searched_transcribed_and_audited_or_is_listed() -> None:
    found = {
        "search": {*SEARCHED},
        "transcript": kinds_in("log/transcript.py"),
        "audit": kinds_in("sessions/audit.py"),
    }
    for reader, kinds in found.items():
        assert kinds == {kind for kind, readers in READERS.items() if reader in readers.split()}
    assert KINDS.keys() == {*READERS, *UNREAD.split()}


def kinds_in(path: str) -> set[str]:
    """The kinds that a module names, as text or as the class of their payload."""
    kind_of = {payload.__name__: kind for kind, payload in KINDS.items()}
    found = set()
    for node in ast.walk(ast.parse((ROOT / "src" / "holdfast" / path).read_text())):
        if isinstance(node, ast.Attribute) and node.attr in kind_of:
            found.add(kind_of[node.attr])
        elif isinstance(node, ast.Constant) and node.value in KINDS:
            found.add(node.value)
    return found


def test_every_text_that_a_bundle_keeps_is_listed() -> None:
    kept = {
        f"{kind}.{name}"
        for kind, payload in KINDS.items()
        for name, role in listed(payload).items()
        if role in ("id", "name")
    }
    assert kept == {*KEPT_TEXTS.split()}


def test_every_payload_is_a_public_name() -> None:
    assert [one.__name__ for one in KINDS.values() if one.__name__ not in dir(events)] == []


def test_every_text_of_an_event_is_searched_or_is_listed() -> None:
    unsearched = {
        f"{kind}.{name}"
        for kind, payload in KINDS.items()
        for name, role in listed(payload).items()
        if role == "text" and name not in SEARCHED.get(kind, ())
    }
    assert unsearched == {*UNSEARCHED.split()}


def test_every_content_that_an_encrypted_store_keeps_in_clear_text_is_listed() -> None:
    clear = {
        f"{kind}.{name}"
        for kind, names in CLEAR.items()
        for name in names
        if listed(KINDS[kind])[name] not in ("keep", "id", "name", "names")
    }
    assert clear == {*CLEAR_TEXTS.split()}


def test_every_kind_of_the_transcript_is_in_the_history_of_prompts() -> None:
    history = "harness/live/prompt_history.py"
    rewinds = {"thread.rewound"}  # the history finds them with `rewound_to`
    assert kinds_in("log/transcript.py") - kinds_in(history) == rewinds, history


def test_every_kind_that_changes_the_display_is_tried_by_its_laws() -> None:
    """A display that is built anew must be what it was: `since` says which events it reads."""
    page = Path(display_laws.__file__).read_text()
    changing = {kind for kind, (_, effect) in test_reducer.EFFECTS.items() if effect}
    assert changing - {*re.findall(r"of\(\s*\"([a-z.]+)\"", page)} == set(), "test_laws.py: KINDS"


def test_every_field_of_a_display_is_documented() -> None:
    page = (ROOT / "docs" / "session.md").read_text()
    cells = " ".join(re.findall(r"^\| (`.*?) \|", page, re.M))
    fields = {*Display.__struct_fields__} - FOR_REDUCE
    assert [name for name in sorted(fields) if f"`{name}`" not in cells] == [], "docs/session.md"


def test_the_contract_runs_on_every_kind_of_store() -> None:
    assert {*test_stores.URLS, *servers.KINDS} >= SCHEMES.keys()


@pytest.mark.parametrize(
    ("tested", "without"),
    [
        pytest.param({*copy_scene.URLS, *copy_scene.SERVERS}, set(), id="copy/scene.py"),
        pytest.param({*bundle_scene.KINDS}, set(), id="bundle/core/scene.py"),
        pytest.param({*test_laws.KINDS}, set(), id="sessions/test_laws.py"),
        pytest.param({*links_places.KINDS}, set(), id="links/places.py"),
        pytest.param({*test_around.KINDS}, set(), id="vault/test_around.py"),
        pytest.param({*hands.KINDS}, {"memory"}, id="vault/hands.py"),
        pytest.param({*crash_places.KINDS, *crash_places.SHARED}, {"memory"}, id="crash/places.py"),
    ],
)
def test_the_tests_of_a_folder_run_on_every_kind_of_store(
    tested: set[str], without: set[str]
) -> None:
    assert tested >= SCHEMES.keys() - without


def test_every_store_with_files_has_an_example_of_earlier_versions(tmp_path: Path) -> None:
    urls = {kind: url(tmp_path) for kind, url in copy_scene.URLS.items()}
    assert {kind for kind, url in urls.items() if place(url) is not None} == {*write.STORES}


@pytest.mark.parametrize("kind", SCHEMES)
def test_every_kind_of_store_is_in_the_tables_and_has_its_options_documented(kind: str) -> None:
    schemes = [f"| `{scheme}:" for scheme in SCHEMES[kind]]
    assert any(scheme in (ROOT / "README.md").read_text() for scheme in schemes)
    pages = [ROOT / "docs" / name for name in ("platforms.md", "stores.md", f"{kind}.md")]
    text = "\n".join(page.read_text() for page in pages if page.exists())
    names = {"postgres": "PostgreSQL", "mongodb": "MongoDB"}
    assert names.get(kind, f"`{kind}:") in pages[0].read_text()
    missing = [name for name in OPTIONS[kind] if not re.search(rf"`{name}`|[?&]{name}=", text)]
    assert missing == []
    if OPTIONS[kind].keys() - OPTIONS["sqlite"].keys():
        assert pages[-1].exists(), "a store with options of its own has a page"


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_option_is_documented_with_its_store_and_tried_by_a_test(kind: str) -> None:
    page = ROOT / "docs" / f"{kind}.md"
    tables = "".join((ROOT / "docs" / name).read_text() for name in ("platforms.md", "stores.md"))
    rows = re.findall(rf"^\| [^|]*`{kind}:.*$", tables, re.M)
    text = page.read_text() if page.exists() else "\n".join(rows)
    assert [name for name in OPTIONS[kind] if not re.search(rf"\b{name}\b", text)] == []
    tests = [path for path in sorted(ROOT.glob("tests/**/*.py")) if path.parent.name != "registry"]
    tried = "\n".join(path.read_text() for path in tests)
    assert [name for name in OPTIONS[kind] if not re.search(rf"[?&]{name}=", tried)] == []


@pytest.mark.parametrize("kind", LOCAL)
async def test_the_arguments_of_a_store_are_its_options(kind: str, tmp_path: Path) -> None:
    """They are read by the table alone, so that a bad value is always an `InvalidValue`."""
    arguments = inspect.signature(LOCAL[kind].open).parameters
    assert arguments.keys() - INNER - {"path"} == OPTIONS[kind].keys(), "stores/url_options.py"
    for name, option in OPTIONS[kind].items():
        bad = "no such value" if isinstance(option.default, str) else -1
        with pytest.raises(InvalidValue) as caught:
            await LOCAL[kind].open(tmp_path / "store", **{name: bad})
        assert caught.value.field == name
    assert os.listdir(tmp_path) == [], "nothing was opened"


@pytest.mark.parametrize("operation", test_operations.VERBS)
def test_the_client_verb_of_every_operation_is_documented(operation: str) -> None:
    page = (ROOT / "docs" / "client.md").read_text()
    called: Any = test_operations.VERBS[operation](Called("client"), Called("session"))  # type: ignore[arg-type]
    *parts, verb = called
    part = ".".join(parts).removeprefix("session.")
    rows = [line for line in page.splitlines() if re.match(rf"\| .*`{part}`", line)]
    assert any(f"`{verb}`" in row for row in rows), f"`{verb}` is not in the row of `{part}`"


class Called:
    """Records which method of an object is called, as a tuple of names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Called:
        return Called(*self._names, name)

    def __call__(self, *args: object, **options: object) -> tuple[str, ...]:
        return self._names


def test_every_setting_of_a_harness_is_refused_with_a_bad_value_and_documented() -> None:
    settings = inspect.signature(Harness).parameters.keys() - OLD
    cases = next(
        mark.args[1]
        for mark in vars(test_settings.test_a_setting_that_cannot_work_is_refused)["pytestmark"]
        if mark.name == "parametrize"
    )
    assert {name for name, _ in cases} == settings - UNCHECKED
    page = (ROOT / "docs" / "harness.md").read_text()
    assert [name for name in sorted(settings) if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_has_an_extra_a_page_and_public_names(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    public = name.replace("_", "-")
    assert public in project["optional-dependencies"]
    assert (ROOT / "docs" / f"{public}.md").exists()
    assert f"holdfast.adapters.{name}" in test_architecture.IMPORTED.split()


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
            if "://" not in link and (target := (page.parent / link).resolve()).exists():
                waiting.append(target)
    assert [page for page in sorted(ROOT.glob("docs/**/*.md")) if page not in reached] == []


def test_every_handler_is_registered() -> None:
    for path in sorted(Path(routes.__file__).parent.glob("*.py")):
        module = import_module(f"{routes.__name__}.{path.stem}")
        made = [one for one in vars(module).values() if isinstance(one, HTTPRouteHandler)]
        listed = [id(one) for one in getattr(module, "HANDLERS", ())]
        assert [one.fn.__name__ for one in made if id(one) not in listed] == [], path.name


def test_every_route_has_a_row_with_its_method() -> None:
    table = (ROOT / "docs" / "http.md").read_text().partition("### Bodies")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.M)
    rows = [{*re.findall(r"[\w-]+", cell)} for cell in cells]
    for handler in ROUTES:
        for path in handler.paths:
            words = re.findall(r"[\w-]+", re.sub(r"{[^}]*}", "", path))
            (method,) = handler.http_methods
            assert any({method, words[-1]} <= row for row in rows), f"{method} {path}: docs/http.md"


def test_every_route_has_a_scope_that_fits_its_method() -> None:
    for handler in ROUTES:
        scope, (method,) = handler.opt.get("scope"), handler.http_methods
        if scope not in (None, "bundles", "webhooks"):
            assert (scope in READING) == (method == "GET"), f"{handler.operation_id}: {scope}"


def test_every_json_answer_has_a_type_and_every_operation_a_text() -> None:
    for item in contracts.document()["paths"].values():
        for operation in item.values():
            name = operation["operationId"]
            assert operation.get("summary") or operation.get("description"), name
            for code, answer in operation["responses"].items():
                schema = answer.get("content", {}).get("application/json", {}).get("schema")
                if code.startswith("2") and schema is not None:
                    assert "$ref" in str(schema), (
                        f"{name} answers with any JSON: use a type of wire/"
                    )
