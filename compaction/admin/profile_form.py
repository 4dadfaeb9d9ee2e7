"""The form of a profile: name and preset, and one field a parameter that may stay empty.

Fields are made from the parameters' metadata. Nothing is judged here: what cannot be read as the
parameter's type stays a text, and the engine says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.llm.registry import all_models
from compaction.admin.profile_values import (
    PARAMETERS,
    Value,
    author_of,
    inherited_values,
    inherited_words,
    label_of,
    own_parameters,
)
from compaction.engine.history_json import (
    LONGEST_JSON,
    HistoryJsonError,
    check_history_values,
    read_history_json,
)
from compaction.engine.profile import (
    NAMES,
    PRESETS,
    names_in,
    parameter_choices,
    parameter_types,
)
from compaction.errors import StaleProfileError
from compaction.models import CompactionProfile
from compaction.profiles import refuse_stale

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[CompactionProfile]
else:
    _ModelForm = forms.ModelForm

NONE = "none"
OWN_MODEL = "(the session's own)"
TYPES = parameter_types()
_SWITCH = {"on": True, "off": False}
_WHOLE = re.compile(r"[+-]?(\d{1,3}(,\d{3}){1,6}|\d{1,20})", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d{1,20}(\.\d{0,20})?|\.\d{1,20})", re.ASCII)

HEAD = ("name", "base", "description")
PASTED = "history_json"
"""The field for the JSON of other systems; what it holds counts over the fields."""
LEAST_ROWS, MOST_ROWS = 3, 20


class UnitInput(forms.TextInput):
    """A text box with a unit behind it.

    No type="number": with such a box a browser sends nothing for what it cannot read, and nothing
    means "as the preset" here.
    """

    def __init__(self, unit: str, **options: Any) -> None:
        super().__init__(**options)
        self.unit = unit

    def render(self, name: str, value: Any, *args: Any, **options: Any) -> SafeString:
        """Return the box and its unit; empty, it shows what the preset says."""
        shown = value or str(self.attrs.get("placeholder", "")).rpartition(" ")[2]
        return format_html(
            '<span class="with-unit">{} <span class="unit">{}</span></span>',
            super().render(name, value, *args, **options),
            formatting.unit_of(shown, self.unit),
        )


class TextBox(forms.Textarea):
    """A box for several lines, as high as what stands in it."""

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Have it show its lines, or those that count while it is empty."""
        shown = str(value or self.attrs.get("placeholder", ""))
        rows = min(MOST_ROWS, max(LEAST_ROWS, len(shown.splitlines()) + 1))
        return super().get_context(name, value, (attrs or {}) | {"rows": rows})


class ModelsInput(forms.TextInput):
    """A text box for aliases of models, which offers those that there are."""

    def render(self, name: str, value: Any, *args: Any, **options: Any) -> SafeString:
        """Return the box and what it offers."""
        offered = format_html_join("", '<option value="{}">', ((one,) for one in self._offered()))
        box = super().render(name, value, *args, **options)
        return format_html('{}<datalist id="{}_models">{}</datalist>', box, name, offered)

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Name the list that is offered."""
        return super().get_context(name, value, (attrs or {}) | {"list": f"{name}_models"})

    def _offered(self) -> list[str]:
        return [OWN_MODEL, *all_models()]


def parameter_fields() -> dict[str, forms.Field]:
    """Return a field for every parameter."""
    return {name: _field(name, item) for name, item in PARAMETERS.items()}


def allowed_values(name: str) -> str:
    """Return what a parameter may be; nothing where it is any text."""
    limits = PARAMETERS[name].metadata
    if choices := parameter_choices(name):
        return ", ".join(choices)
    if "minimum" in limits:
        unit = f" {limits['unit']}" if limits["unit"] else ""
        return f"{limits['minimum']:,} to {limits['maximum']:,}{unit}"
    if TYPES[name] == NAMES:
        return f"Aliases with commas between; {OWN_MODEL} is one"
    return "on, off" if TYPES[name] is bool else ""


def prepare(form: forms.BaseForm, inherited: Mapping[str, Value]) -> None:
    """Tell the fields of a form what an empty one means, and selects what can be chosen."""
    for name in PARAMETERS:
        widget = form.fields[name].widget
        words = inherited_words(name, inherited)
        if not isinstance(widget, forms.Select):
            widget.attrs["placeholder"] = words
            continue
        options = [("", words), *_options(name)]
        chosen = str(form[name].value() or "")
        if chosen not in [value for value, _ in options]:
            options.append((chosen, f"{formatting.shortened(chosen)} (unknown here)"))
        widget.choices = options


def as_text(name: str, value: Any) -> str:
    """Return what stands in the field of a value that is set."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "on" if value else "off"
    if TYPES[name] == NAMES:
        names = [value] if isinstance(value, str) else value
        return ", ".join(str(one) or OWN_MODEL for one in names)
    return str(value)


def read(name: str, text: str) -> Any:
    """Return the value that a field's text means, or the text itself where it means none."""
    kind = TYPES[name]
    if kind is bool:
        return _SWITCH.get(text, text)
    if kind is str:
        # Browsers end lines with two characters; a summariser is to read one.
        return text.replace("\r\n", "\n")
    if kind == NAMES:
        return _models_in(text)
    if NoneType in get_args(kind) and text.lower() == NONE:
        return None
    if _WHOLE.fullmatch(text):
        return int(text.replace(",", ""))
    return float(text) if kind is not int and _DECIMAL.fullmatch(text) else text


def _models_in(text: str) -> str | list[str]:
    """Return the aliases that a field lists; one that holds a comma itself is one."""
    named = text if text in all_models() else names_in(text)
    own = [
        one if one != OWN_MODEL else "" for one in ([named] if isinstance(named, str) else named)
    ]
    return own if len(own) > 1 else own[0]


def _options(name: str) -> list[tuple[str, str]]:
    if TYPES[name] is bool:
        return [("on", "On"), ("off", "Off")]
    return [(choice, choice) for choice in parameter_choices(name)]


def _field(name: str, item: Field[Any]) -> forms.CharField:
    limits, kind = item.metadata, TYPES[name]
    widget: forms.Widget
    if kind is bool or parameter_choices(name):
        widget = forms.Select()
    elif kind == NAMES:
        widget = ModelsInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    elif limits.get("multiline"):
        widget = TextBox(attrs={"rows": LEAST_ROWS, "spellcheck": "false"})
    elif kind is str:
        widget = forms.TextInput(attrs={"class": "profile-line"})
    else:
        mode = "numeric" if kind is int else "decimal"
        attrs = {"inputmode": mode, "autocomplete": "off", "spellcheck": "false"}
        widget = UnitInput(limits["unit"], attrs=attrs)
    values = "" if isinstance(widget, forms.Select) else allowed_values(name)
    allowed = f"{values}. " if values else ""
    if NoneType in get_args(kind):
        allowed = f"{allowed_values(name)}, or {NONE}. "
    return forms.CharField(
        required=False,
        max_length=1000 if kind == NAMES else limits.get("longest", 200),
        label=label_of(name),
        widget=widget,
        help_text=format_html("{} {}<code>{}</code>", limits["help"], allowed, name),
    )


def pasted_field() -> forms.CharField:
    """Return the field that takes the JSON of other systems."""
    return forms.CharField(
        required=False,
        max_length=LONGEST_JSON,
        label="Parameters as JSON",
        widget=TextBox(attrs={"rows": LEAST_ROWS, "spellcheck": "false"}),
        help_text="Paste the JSON of another system here (trigger_on_history_size_chars …, "
        "abridged_history_params): its values count over the fields above, key by key, and null "
        "empties a field.",
    )


class _ParameterForm(_ModelForm):
    """An empty field sets nothing: the preset's value counts, for bisect the environment's.

    Every rule is the engine's: the model's clean() has a sentence for every wrong value, and
    add_error puts it at the parameter's field.
    """

    class Meta:
        model = CompactionProfile
        fields = HEAD
        labels: ClassVar[dict[str, str]] = {"base": "Preset"}

    def __init__(self, *args: Any, **options: Any) -> None:
        row: CompactionProfile | None = options.get("instance")
        own = {
            name: as_text(name, value)
            for name, value in own_parameters(row).items()
            if name in PARAMETERS
        }
        options["initial"] = own | (options.get("initial") or {})
        super().__init__(*args, **options)
        base = self["base"].value() if "base" in self.fields else self.instance.base
        self.base_shown = str(base)
        prepare(self, inherited_values(self.base_shown))

    def clean_name(self) -> str:
        """Refuse a name that exists: its page makes new versions."""
        name = str(self.cleaned_data["name"])
        if CompactionProfile.objects.filter(name=name).exists():
            raise ValidationError(
                f"There is a profile {name!r} already. Open its current version and change that."
            )
        return name

    def clean(self) -> dict[str, Any]:
        """Put the parameters together for the model's clean(); refuse to overwrite a newer one."""
        cleaned = super().clean() or self.cleaned_data
        filled = {name: read(name, cleaned[name]) for name in PARAMETERS if cleaned.get(name)}
        self.instance.parameters = self._with_pasted(filled, cleaned.get(PASTED) or "")
        if self.instance.pk:
            self._refuse_stale()
        return cleaned

    def _with_pasted(self, filled: dict[str, Any], text: str) -> dict[str, Any]:
        """Return the parameters with the JSON's over them; all its faults stand at its field."""
        if not text.strip():
            return filled
        try:
            found = read_history_json(text).over(filled)
            base = self.cleaned_data.get("base") or self.instance.base
            if base in PRESETS:
                check_history_values(PRESETS[base], found)
        except HistoryJsonError as error:
            self.add_error(PASTED, error.sentences)
            return filled
        return found

    def _refuse_stale(self) -> None:
        name, opened = self.instance.name, self.instance.version
        current = CompactionProfile.objects.filter(name=name, is_current=True).first()
        try:
            refuse_stale(current, opened)
        except StaleProfileError as error:
            if current is None:
                raise ValidationError(str(error)) from error
            author = author_of(current)
            raise ValidationError(
                format_html(
                    "{} was saved meanwhile{}: look at it first. Nothing was saved here.",
                    html.row_link(current, f"Version {current.version}"),
                    f" by {author}" if author else "",
                )
            ) from error

    def add_error(self, field: str | None, error: Any) -> None:
        """Put what the model says of `parameters` at the fields of the parameters."""
        told = dict(getattr(error, "error_dict", {}))
        for each in told.pop("parameters", []):
            name = (each.params or {}).get("parameter", "")
            if name in PARAMETERS:
                super().add_error(name, each.params["sentence"])
            else:
                super().add_error(None, each)
        for name, errors in told.items():
            super().add_error(name if name in self.fields else None, errors)
        if not hasattr(error, "error_dict"):
            super().add_error(field, error)

    def sentences(self) -> dict[str, list[str]]:
        """Return what is wrong at each field, as texts."""
        return {
            name: [str(sentence) for sentence in told]
            for name, told in self.errors.items()
            if name != NON_FIELD_ERRORS
        }


_METACLASS: Any = type(_ParameterForm)
ProfileForm: Any = _METACLASS(
    "ProfileForm", (_ParameterForm,), parameter_fields() | {PASTED: pasted_field()}
)
"""The whole form: the fields are those of the engine's Profile, whatever they are."""
