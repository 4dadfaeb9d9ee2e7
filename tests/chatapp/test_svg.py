"""Drawings: whatever stands in them is text, and no style stands inline."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from chatapp.admin.toolkit import svg

NASTY = '</title><script>alert("1")</script>'


def test_an_attribute_and_a_text_cannot_leave_their_place():
    drawn = svg.drawing(
        svg.anchor("/x/?a=1&b=2", svg.element("rect", svg.title(NASTY), width=3), label=NASTY),
        width=10, height=5, label=NASTY, cls="meter", has_links=True,
    )  # fmt: skip
    root = ET.fromstring(drawn)
    assert "<script" not in drawn
    assert root.attrib["aria-label"] == NASTY
    assert root.find("a").attrib == {"href": "/x/?a=1&b=2", "aria-label": NASTY}
    assert root.find("a/rect/title").text == NASTY


def test_names_of_attributes_are_written_as_svg_has_them():
    drawn = svg.element("line", x1=0, stroke_width=2, cls="axis", fill=None)
    assert drawn == '<line x1="0" stroke-width="2" class="axis"></line>'


def test_coordinates_have_two_decimals_at_most():
    assert svg.element("rect", x=1.23456, y=2.0, width=0.5, height=-0.001) == (
        '<rect x="1.23" y="2" width="0.5" height="-0"></rect>'
    )


def test_a_drawing_with_links_is_a_group_and_one_without_an_image():
    plain = ET.fromstring(svg.drawing(width=100, height=8.5, label="Meter", cls="meter"))
    linked = ET.fromstring(
        svg.drawing(width=1, height=1, label="Strip", cls="strip", has_links=True)
    )
    assert (plain.attrib["role"], linked.attrib["role"]) == ("img", "group")
    assert plain.attrib["viewBox"] == "0 0 100 8.5"
