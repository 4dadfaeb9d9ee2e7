"""The shape of the product, held by tests: who may know whom, and what is loaded when."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.checks.registry import registry
from django.core.management import find_commands, load_command_class

from chatapp.conf import (
    COMMAND_CHECKS,
    SETTINGS_TAG,
    ChatappSettings,
    ModelSettings,
    ServerSettings,
)
from compaction.conf import CompactionSettings
from compaction.engine.profile import ENVIRONMENT, WINDOW_ENVIRONMENT
from tests.sequences import SEQUENCES

ROOT = Path(__file__).resolve().parent.parent.parent
COMPOSITION_ROOT = {"chatapp/settings.py"}


def sources(folder: str) -> dict[str, str]:
    """Return the text of every Python file below a folder by its path."""
    found = sorted((ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in found}


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter in the checkout."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"},
    )  # fmt: skip


def words_of(text: str) -> str:
    """Return names and strings of a module in one text; comments and docstrings are left out."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def test_chatapp_does_not_know_the_word_compaction_outside_the_composition_root():
    knows = {
        path
        for path, text in sources("chatapp").items()
        # The files of other programs have entries of that name.
        if re.search(r"\bcompaction\b", words_of(text)) and "/formats/" not in path
    }
    assert knows <= COMPOSITION_ROOT


def test_chatapp_imports_nothing_of_compaction():
    importing = [
        path
        for path, text in sources("chatapp").items()
        if re.search(r"^\s*(?:from|import) compaction\b", text, re.MULTILINE)
    ]
    assert importing == []


def test_only_the_queue_module_knows_django_q():
    knows = {
        path
        for folder in ("chatapp", "compaction")
        for path, text in sources(folder).items()
        if "django_q" in text and "migrations" not in path
    }
    assert knows - {"chatapp/settings.py"} == {"compaction/runs/queue.py"}


def test_the_engine_imports_without_django():
    modules = sorted((ROOT / "compaction/engine").rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules]
    blocked = ("django", "rest_framework", "django_q", "openai", "tiktoken")
    code = (
        "import sys, importlib\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("library", ["openai", "tiktoken"])
def test_a_started_django_has_not_loaded(library):
    done = python(f"import django, sys; django.setup(); print({library!r} in sys.modules)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "False"


def test_a_command_starts_without_pages_and_addresses():
    """They take most of a second to load, and a command that works at night shows none."""
    code = (
        "import sys, django\n"
        "from django.core.management import call_command\n"
        "django.setup()\n"
        "try: call_command('export_transcript', '00000000-0000-4000-8000-000000000000')\n"
        "except BaseException as error: print(type(error).__name__)\n"
        "print([one for one in sys.modules if one.endswith(('.admin', '.urls', '.api'))])\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    own = ("chatapp", "compaction")
    loaded = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    assert [name for name in loaded if name.startswith(own)] == []


# What pages, requests, summaries and files of other programs take. Each of these commands works
# without, and waited for it when one module imported another that it did not need.
NOT_FOR_COMMANDS = (
    "chatapp.admin.", "chatapp.api.", "chatapp.formats.", "chatapp.urls", "chatapp.turns.",
    "compaction.admin", "compaction.api.", "compaction.attention",
    "compaction.engine.strategies.bisect", "pydantic_settings",
    "compaction.engine.fidelity.redaction", "compaction.memories.", "compaction.recovery.",
    "compaction.runs.before_request", "compaction.runs.execution", "compaction.runs.sweep",
    "compaction.runs.worker", "compaction.summaries.model_summarizer",
    "compaction.summaries.summarizer", "django.test", "drf_spectacular.plumbing", "openai",
    "requests", "rest_framework.serializers", "rest_framework.views", "tiktoken", "uvicorn",
)  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        ["doctor"],
        ["compaction_report"],
        ["resummarize", "--all", "--dry-run"],
        ["show_session", "00000000-0000-4000-8000-000000000000"],
        ["api_key", "list"],
        ["roll_up"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_loads_nothing_that_it_does_not_use(command):
    """Its checks have run, too; there is no table, so it ends where it first asks for a row."""
    code = (
        "import sys, django\n"
        "from django.core.management import ManagementUtility\n"
        f"try: ManagementUtility(['manage.py', *{command!r}]).execute()\n"
        "except BaseException as error: print(type(error).__name__)\n"
        f"print([one for one in sys.modules if one.startswith({NOT_FOR_COMMANDS!r})])\n"
        "print('compaction.backend' in sys.modules)\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    loaded, has_checked = done.stdout.strip().splitlines()[-2:]
    assert (ast.literal_eval(loaded), has_checked) == ([], "True")


def test_the_collector_begins_when_a_command_does():
    """What loading makes stays: looking through it for what is not needed takes a fifth of it."""
    code = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 100_000)"
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"},
    )  # fmt: skip
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_a_command_looks_at_what_somebody_set_before_it_begins():
    bare = {
        f"{app}.{name}": type(load_command_class(app, name)).requires_system_checks
        for app in ("chatapp", "compaction")
        for name in find_commands(str(ROOT / app / "management"))
    }
    # It serves pages, so it looks at all of them; these two are for those who have set nothing.
    assert bare.pop("chatapp.serve") == "__all__"
    without = {"chatapp.load_encodings", "chatapp.local_model", "compaction.demo"}
    assert {name: found for name, found in bare.items() if name not in without} == dict.fromkeys(
        bare.keys() - without, COMMAND_CHECKS
    )
    assert {getattr(one, "__module__", "") for one in checks_of_settings()} == {
        "chatapp.checks",
        "compaction.checks",
    }


def checks_of_settings() -> list[object]:
    """Return what such a command runs."""
    found = registry.get_checks(include_deployment_checks=True)
    return [one for one in found if SETTINGS_TAG in getattr(one, "tags", ())]


def test_every_management_command_has_a_test():
    tests = "\n".join(text for path, text in sources("tests").items() if "/test_" in path)
    commands = {
        path.stem
        for app in ("chatapp", "compaction")
        for path in (ROOT / app / "management/commands").glob("*.py")
        if path.stem != "__init__"
    }
    untested = {name for name in commands if not re.search(rf"[\"'`]{name}[\"' ]", tests)}
    assert untested == set()


def test_the_import_contracts_hold():
    command = shutil.which("lint-imports") or str(Path(sys.executable).parent / "lint-imports")
    done = subprocess.run(
        [command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout


def variables() -> set[str]:
    """Return the name of every variable that sets something."""
    groups = (ServerSettings, ModelSettings, ChatappSettings, CompactionSettings)
    declared = {one.variable for group in groups for one in group.declarations()} - {""}
    return declared | set(ENVIRONMENT) | set(WINDOW_ENVIRONMENT)


def test_the_settings_read_variables():
    assert {"SECRET_KEY", "DATABASE_URL", "SUMMARY_MESSAGE_LIMIT"} <= variables()


def test_every_variable_has_a_row_in_the_table_of_settings():
    page = (ROOT / "docs/settings.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|")]
    missing = {name for name in variables() if not any(f"`{name}`" in row for row in rows)}
    assert missing == set()


def test_every_variable_of_document_002_reaches_the_profile():
    own = ENVIRONMENT.keys() - WINDOW_ENVIRONMENT.keys()
    assert len(own) == 13
    assert set(ENVIRONMENT) <= variables()


def test_the_migrations_are_complete(db):
    from django.core.management import call_command

    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


MOST_README_WORDS = 900
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= MOST_README_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_picture_of_the_documents_is_there(page):
    missing = [target for target in links_of(page) if not is_there(page, target)]
    assert missing == []


def test_every_picture_of_the_documents_is_shown_somewhere():
    shown = {(page.parent / target).resolve() for page in PAGES for target in links_of(page)}
    pictures = set((ROOT / "docs/pictures").iterdir())
    assert pictures - shown == set()


def test_the_sequence_pictures_are_those_that_their_module_draws():
    drawn = {name: picture.svg() for name, picture in SEQUENCES.items()}
    assert {name: (ROOT / "docs/pictures" / name).read_text() for name in drawn} == drawn


def links_of(page: Path) -> list[str]:
    """Return the addresses of a document's links and pictures that are no web addresses."""
    found = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))
    return [target for target in found if not target.startswith(("http:", "https:"))]


def is_there(page: Path, target: str) -> bool:
    """Return whether a link's file exists and has the heading that the link names."""
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.exists():
        return False
    return not anchor or anchor in anchors_of(file)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in headings}


def without_code(text: str) -> str:
    """Return a document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_ci_repeats_what_it_names_and_every_slow_test():
    """The README's command leaves slow tests out: they run on PostgreSQL, with some files again."""
    folder = ROOT / ".ci"
    names = (folder / "on-postgresql").read_text().splitlines()
    named = [name for name in names if not name.startswith("#")]
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []
    run = (folder / "run").read_text()
    assert '-m "slow or databases" "${files[@]}"' in run
    assert "grep -rl 'mark\\.slow' tests" in run


def test_what_ci_does_not_repeat_is_not_marked(request):
    """The other side is in tests/architecture/test_migrations.py, which CI repeats."""
    assert request.node.get_closest_marker("databases") is None
