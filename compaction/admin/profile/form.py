"""The form of a profile: name and preset, and one field a parameter that may stay empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils.html import format_html

from chatapp.admin import cells
from compaction.admin.profile.fields import as_text, parameter_fields, prepare, read
from compaction.admin.profile.values import (
    PARAMETERS,
    inherited_values,
    own_parameters,
)
from compaction.admin.profile.versions import author_of
from compaction.errors import StaleProfileError
from compaction.models import CompactionProfile
from compaction.profiles import refuse_stale

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[CompactionProfile]
else:
    _ModelForm = forms.ModelForm

HEAD = ("name", "base", "description")


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
        self.instance.parameters = {
            name: read(name, cleaned[name]) for name in PARAMETERS if cleaned.get(name)
        }
        if self.instance.pk:
            self._refuse_stale()
        return cleaned

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
                    cells.row_link(current, f"Version {current.version}"),
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
ProfileForm: Any = _METACLASS("ProfileForm", (_ParameterForm,), dict(parameter_fields()))
"""The whole form: the fields are those of the engine's Profile, whatever they are."""
