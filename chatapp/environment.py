"""Settings declared in groups and read from the environment; what cannot be meant is a sentence.

A variable NAME may also be given as NAME_FILE: the path of a file that holds the value, as
container platforms mount secrets. An empty variable is none.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

# None of ours: whenever a process starts, the library would look for them in the metadata of every
# installed package.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
# Tells a setting that has a variable of its own name from one that has none.
OF_ITS_NAME = "*"


def setting(
    default: Any,
    text: str,
    *,
    unit: str = "",
    variable: str | None = OF_ITS_NAME,
    shown: str | None = None,
    minimum: int | None = None,
    check_default: bool = False,
) -> Any:
    """Declare a setting of a group.

    A `default` that is a function gets the fields declared before it and returns the default;
    `shown` says in words what comes out. `variable` is None where only Python can set it.
    """
    facts: dict[str, Any] = {"unit": unit, "variable": variable, "shown": shown, "minimum": minimum}
    computed = {"default_factory": default} if callable(default) else {"default": default}
    return Field(
        description=text, json_schema_extra=facts, validate_default=check_default, **computed
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What is known of one setting; `variable` is empty where only Python can set it."""

    name: str
    variable: str
    default: Any
    shown: str | None
    unit: str
    minimum: int | None
    text: str


class VariableError(ImproperlyConfigured):
    """A variable that cannot be used; the text is a sentence that names it."""


class SettingsGroup(BaseModel):
    """Settings that belong together: frozen, each one a field declared with `setting`."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, extra="forbid")
    variable_prefix: ClassVar[str] = ""

    @classmethod
    def from_environment(cls) -> Self:
        """Return the group as the environment sets it: by NAME, or by NAME_FILE, which counts more.

        Raises VariableError.
        """
        variables = {each.variable: each.name for each in cls.declarations() if each.variable}
        texts = texts_of(variables)
        try:
            return cls(**{variables[variable]: text for variable, text in texts.items()})
        except ValidationError as error:
            # The error itself would show an address with its password.
            raise VariableError(_sentence(cls, error)) from None

    @classmethod
    def from_mapping(cls, name: str, values: Mapping[str, Any]) -> Self:
        """Return the group as a dict of Django's settings sets it, keys in upper case.

        What the dict leaves out comes from the environment. Its own values are taken as they are:
        the system checks say what cannot work.
        """
        known = {field.upper() for field in cls.model_fields}
        if unknown := sorted(set(values) - known):
            raise ImproperlyConfigured(
                f"{name} has keys that nothing reads: {', '.join(unknown)}. "
                f"Known keys are {', '.join(sorted(known))}."
            )
        given = {key.lower(): value for key, value in values.items()}
        return cls.from_environment().model_copy(update=given)

    def as_mapping(self) -> dict[str, Any]:
        """Return every value by its key: the setting's name in upper case."""
        return {name.upper(): getattr(self, name) for name in type(self).model_fields}

    @classmethod
    def declarations(cls) -> list[Declaration]:
        """Return what is known of every setting, in the order of their declaration."""
        return [_declaration(cls, name, field) for name, field in cls.model_fields.items()]


def texts_of(variables: Iterable[str]) -> dict[str, str]:
    """Return the texts of those variables that are set."""
    texts = {variable: _text_of(variable) for variable in variables}
    return {variable: text for variable, text in texts.items() if text is not None}


def _text_of(variable: str) -> str | None:
    path = os.environ.get(f"{variable}_FILE")
    if not path:
        return _unless_blank(os.environ.get(variable))
    try:
        return _unless_blank(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise VariableError(
            f"{variable}_FILE names a file that cannot be read: {error}."
        ) from error


def _unless_blank(text: str | None) -> str | None:
    # Compose files and service units pass on what nobody has set as an empty text.
    return text if text and not text.isspace() else None


def _declaration(group: type[SettingsGroup], name: str, field: FieldInfo) -> Declaration:
    facts = cast("dict[str, Any]", field.json_schema_extra)
    variable = facts["variable"]
    if variable == OF_ITS_NAME:
        variable = f"{group.variable_prefix}{name.upper()}"
    return Declaration(
        name=name,
        variable=variable or "",
        default=None if field.default_factory else field.default,
        shown=facts["shown"],
        unit=facts["unit"],
        minimum=facts["minimum"],
        text=field.description or "",
    )


_EXPECTED = {
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
}


def _sentence(group: type[SettingsGroup], error: ValidationError) -> str:
    """Return what is wrong with the first variable that cannot be used."""
    fault = error.errors()[0]
    name = str(fault["loc"][0])
    variable = _declaration(group, name, group.model_fields[name]).variable
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"]).replace("{variable}", variable)
    expected = _EXPECTED.get(fault["type"]) or fault.get("ctx", {}).get("expected", fault["msg"])
    return f"{variable} must be {expected.replace(chr(39), '')}, not {fault['input']!r}."


# --- kinds of values ------------------------------------------------------------------------------


def _word(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _switch(value: Any) -> Any:
    """Return a word for true or false; a variable that is set to nothing is false."""
    return _word(value) or False


def _pieces(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(piece for part in value.split(",") if (piece := part.strip()))


def _json_object(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError('{variable} must be a JSON object, such as {"name": "value"}.')
    return found


def _level(value: str) -> str:
    wanted = value.strip().upper()
    if wanted not in logging.getLevelNamesMapping():
        raise ValueError(
            f"{{variable}} must be DEBUG, INFO, WARNING, ERROR or CRITICAL, not {wanted!r}."
        )
    return wanted


def _folder(path: Path) -> Path:
    """Return a folder that can be written to, made where it is missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{{variable}}: the folder cannot be made: {error}.") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(f"{{variable}}: the folder {path} cannot be written to.")
    return path


def _database(address: str) -> dict[str, Any]:
    """Return a database's settings. The address, which may hold a password, is not quoted."""
    # Clusters of several hosts and passwords that are not escaped are understood by this library.
    from environ import Env

    try:
        if address.partition("://")[0] in Env.DB_SCHEMES:
            return dict(Env.db_url_config(address))  # type: ignore[no-untyped-call]
    except ValueError:
        pass  # a port that is no number, a host that is none
    raise ValueError(
        "{variable} is no address of a database. "
        "It is postgres://user:password@host/name or sqlite:////path/of/the/file."
    )


Switch = Annotated[bool, BeforeValidator(_switch)]
Pieces = Annotated[tuple[str, ...], BeforeValidator(_pieces)]
JsonObject = Annotated[dict[str, Any], BeforeValidator(_json_object)]
Level = Annotated[str, AfterValidator(_level)]
Folder = Annotated[Path, AfterValidator(_folder)]
Database = Annotated[dict[str, Any], BeforeValidator(_database)]
LineFormat = Annotated[Literal["line", "json"], BeforeValidator(_word)]


# --- groups as dicts of Django's settings ---------------------------------------------------------

Group = TypeVar("Group", bound=SettingsGroup)


class LazySettings:
    """A dict of Django's settings as a group, read at first use and again after a change."""

    def __init__(self, name: str, group: type[SettingsGroup]) -> None:
        self._name = name
        self._group = group
        self._current: SettingsGroup | None = None
        setting_changed.connect(self._forget, dispatch_uid=f"settings {name}")

    def __getattr__(self, attribute: str) -> Any:
        if self._current is None:
            self._current = self._group.from_mapping(self._name, getattr(settings, self._name, {}))
        return getattr(self._current, attribute)

    def _forget(self, *, setting: str, **kwargs: Any) -> None:
        if setting == self._name:
            self._current = None


def lazy_settings(name: str, group: type[Group]) -> Group:
    """Return the settings dict `name` as its group."""
    return cast(Group, LazySettings(name, group))
