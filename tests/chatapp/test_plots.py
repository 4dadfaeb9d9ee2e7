"""Bar charts: round axes, and nothing that the content policy forbids."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.admin.toolkit.svg import (
    MOST_STEPS,
    Bar,
    Chart,
    Piece,
    Tone,
    axis_steps,
    bar_chart,
    short_number,
)

PLAIN, STRIPED = Tone(name="plain"), Tone(name="odd", marks="stripes")


@pytest.mark.parametrize(
    ("top", "is_whole", "expected"),
    [
        (0, True, [0, 1]),
        (1, True, [0, 1]),
        (3, True, [0, 1, 2, 3]),
        (5, True, [0, 2, 4, 6]),
        (100, True, [0, 50, 100]),
        (120, True, [0, 50, 100, 150]),
        (1_234_567, True, [0, 500_000, 1_000_000, 1_500_000]),
        (0.3, False, [0, 0.1, 0.2, 0.3]),
        (0.0007, False, [0, 0.0002, 0.0004, 0.0006, 0.0008]),
        (0.1 + 0.2, False, [0, 0.1, 0.2, 0.3]),
    ],
)
def test_axes_have_round_numbers(top, is_whole, expected):
    assert axis_steps(top, is_whole) == expected


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_an_axis_reaches_its_tallest_bar_in_few_steps(top):
    steps = axis_steps(top, is_whole=False)
    assert steps[0] == 0
    assert steps == sorted(set(steps))
    assert 2 <= len(steps) <= MOST_STEPS + 1
    assert steps[-1] >= top * (1 - 1e-6)
    # It does not dwarf the bars either.
    assert steps[-1] <= 2.5 * top


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (950, "950"), (12_000, "12k"), (1_500_000, "1.5M"), (0.05, "0.05"), (2e9, "2G")],
)
def test_numbers_of_axes_are_short(value, expected):
    assert short_number(value) == expected


def chart(*columns: Bar, **changes) -> str:
    fields = {"name": "c", "label": "l", "unit": "u", "number": short_number} | changes
    return str(bar_chart(Chart(columns=columns, **fields)))


def column(*values: float, tick: str = "") -> Bar:
    tones = (PLAIN, STRIPED)
    pieces = [
        Piece(tone=tone, value=value, label=f"{tone.name} {value}", url=f"/{tone.name}")
        for tone, value in zip(tones, values, strict=False)
    ]
    return Bar(label="all", url="/all", pieces=pieces, tick=tick)


def heights(drawn: str, tone: str) -> list[float]:
    found = re.findall(rf'class="plot-piece tone-{tone}"[^>]* height="([\d.]+)"', drawn)
    return [float(height) for height in found]


def test_heights_are_in_proportion_and_pieces_stand_on_each_other():
    drawn = chart(column(50, 25), column(100))
    first, second = heights(drawn, "plain")
    assert (second / first, heights(drawn, "odd")[0] / first) == (2.0, 0.5)
    places = re.findall(r'plot-piece[^>]* y="([\d.]+)"[^>]* height="([\d.]+)"', drawn)
    bottoms = [float(y) + float(height) for y, height in places]
    assert bottoms[1] == float(places[0][0])


def test_a_tiny_piece_can_be_seen_and_nothing_is_drawn_for_none():
    drawn = chart(column(1, 0), column(100_000))
    assert heights(drawn, "plain")[0] == 1.5
    assert heights(drawn, "odd") == []


def test_what_is_below_zero_is_not_drawn():
    assert heights(chart(column(-5), column(4)), "plain") == [142.0]


def test_pieces_are_told_apart_by_marks_too():
    drawn = chart(column(1, 1))
    assert re.search(r'<pattern [^>]*id="c-odd"', drawn)
    assert 'fill="url(#c-odd)"' in drawn


def test_every_bar_leads_somewhere_and_says_where():
    drawn = chart(column(1, 2))
    assert re.findall(r'href="([^"]+)"', drawn) == ["/all", "/plain", "/odd"]
    assert re.findall(r"<title>([^<]+)</title>", drawn) == ["all", "plain 1", "odd 2"]


def test_ticks_stand_below_their_columns_or_at_their_edges():
    def places(**changes) -> list[tuple[str, str]]:
        drawn = chart(column(1, tick="a"), column(1), **changes)
        return re.findall(r'<text x="([\d.]+)"[^>]*class="plot-tick">([^<]+)<', drawn)

    assert places() == [("123", "a")]
    assert places(last_tick="z") == [("44", "a"), ("360", "z")]


def test_labels_are_escaped_and_no_style_stands_inline():
    attack = '"><script>alert(1)</script>'
    hostile = Bar(
        label=attack,
        url=attack,
        tick=attack,
        pieces=[Piece(tone=PLAIN, value=1, label=attack, url=attack)],
    )
    drawn = chart(hostile, label=attack, unit=attack)
    assert "<script" not in drawn
    assert "style=" not in drawn
