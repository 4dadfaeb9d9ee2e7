"""The maker of mutants: each is the module with one change, and the table names what exists."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests import mutants
from tests.mutants import ROOT, modules, mutants_of


def changes(code: str) -> list[str]:
    return [mutant.change for mutant in mutants_of(dedent(code))]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a = b < c", ["b < c -> b <= c", "b < c -> b >= c"]),
        ("a = b == c", ["b == c -> b != c"]),
        ("a = b is None", ["b is None -> b is not None"]),
        ("a = b in c", ["b in c -> b not in c"]),
        ("a = b and c", ["b and c -> b or c"]),
        ("a = b or c", ["b or c -> b and c"]),
        ("a = not b", ["not b -> b"]),
        ("a = 4", ["a = 4 -> a = 5", "a = 4 -> a = 3"]),
        ("a = 0.5", ["a = 0.5 -> a = 1.5", "a = 0.5 -> a = -0.5"]),
        ("a = b(True)", ["b(True) -> b(False)"]),
        ("b(c)", ["b(c) -> pass"]),
        ("a = 'text'", []),
    ],
)
def test_each_kind_of_change_is_made(code, expected):
    assert changes(code) == expected


def test_what_a_function_returns_becomes_the_default_of_its_type():
    code = """
        def names(rows) -> list[str]:
            return sorted(rows)
        class Row:
            def title(self) -> str:
                return self.name
    """
    assert [mutant.key for mutant in mutants_of(dedent(code))] == [
        "names: return sorted(rows) -> return []",
        "Row.title: return self.name -> return ''",
    ]


def test_declarations_are_left_as_they_are():
    assert changes("@dataclass(frozen=True)\nclass Row:\n    size: Literal[1]") == []


def test_a_mutant_is_the_module_with_one_change_and_knows_its_line():
    made = mutants_of("a = 1\n\nb = c < d\n")
    assert [mutant.line for mutant in made] == [1, 1, 3, 3]
    assert made[2].source == "a = 1\nb = c <= d"


def test_no_mutant_is_the_module_itself_or_comes_twice():
    source = (ROOT / modules()["cuts"].file).read_text()
    texts = [mutant.source for mutant in mutants_of(source)]
    assert len(set(texts)) == len(texts) > 50
    assert ast.unparse(ast.parse(source)) not in texts


@pytest.mark.parametrize("name", modules())
def test_the_table_names_files_that_are_there(name):
    module = modules()[name]
    assert (ROOT / module.file).is_file()
    assert module.tests


@pytest.mark.parametrize("name", mutants.EQUIVALENT)
def test_every_mutant_that_is_excused_can_still_be_made(name):
    made = {mutant.key for mutant in mutants_of((ROOT / modules()[name].file).read_text())}
    assert set(mutants.EQUIVALENT[name]) - made == set()
