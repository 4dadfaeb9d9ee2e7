"""Tool calls as people read them: the tool's name, its arguments in lines, its result beside them.

What a model wrote may be no JSON and no object: then it is shown as it is. Everything is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp.admin.toolkit import html

NO_ARGUMENTS = "no arguments"
NO_RESULT = "No result is stored."
# An object of so many arguments is shown by name; a larger one as JSON.
MOST_NAMED = 20

_CALL = (
    '<li class="tool-call"><p class="tool-call-head"><code class="tool-call-name" dir="auto">{}'
    "</code> {}</p>"
    '<div class="tool-call-sides"><div class="tool-call-side"><p class="tool-call-label">Arguments'
    "</p>{}</div>{}</div></li>"
)
_RESULT = '<div class="tool-call-side"><p class="tool-call-label">Result {}</p>{}</div>'


def calls_shown(
    calls: Any, results: Mapping[int, tuple[SafeString | str, SafeString | str]] | None = None
) -> SafeString | str:
    """Return a message's calls in order; a dash for none.

    `results` gives each call, by its number from 0, where its result stands and what it says; with
    None results are not spoken of.
    """
    if not isinstance(calls, Sequence) or isinstance(calls, str) or not calls:
        return html.stored_json(calls)
    shown = ((_one(call, number, results),) for number, call in enumerate(calls))
    return format_html('<ol class="tool-calls">{}</ol>', format_html_join("", "{}", shown))


def _one(
    call: Any,
    number: int,
    results: Mapping[int, tuple[SafeString | str, SafeString | str]] | None,
) -> SafeString | str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return format_html('<li class="tool-call">{}</li>', html.stored_json(call))
    name = str(function.get("name") or "(no name)")
    side: SafeString | str = ""
    if results is not None:
        where, text = results.get(number, ("", NO_RESULT))
        side = format_html(_RESULT, where, text)
    called = html.short_id(call["id"]) if call.get("id") else ""
    return format_html(_CALL, name, called, arguments_shown(function.get("arguments")), side)


def arguments_shown(arguments: Any) -> SafeString | str:
    """Return a call's arguments: names with their values, or whatever the model wrote."""
    value = arguments
    if isinstance(arguments, str) and arguments:
        try:
            value = json.loads(arguments)
        except ValueError:
            return html.stored_text(arguments)
    if value in (None, {}, [], ""):
        return format_html('<p class="help">{}</p>', NO_ARGUMENTS)
    if not isinstance(value, dict) or len(value) > MOST_NAMED:
        return html.stored_json(value)
    named = ((name, _value(each)) for name, each in value.items())
    return format_html(
        '<dl class="tool-arguments">{}</dl>',
        format_html_join("", '<div><dt dir="auto">{}</dt><dd>{}</dd></div>', named),
    )


def _value(value: Any) -> SafeString | str:
    if isinstance(value, str):
        return html.stored_text(value) if value else format_html("<em>{}</em>", "empty")
    return html.stored_text(json.dumps(value, indent=2, ensure_ascii=False))
