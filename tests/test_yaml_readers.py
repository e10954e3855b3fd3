"""YAML is read by libyaml where it is there, and nobody can tell: the same data, the same places,
the same refusals in the same words.
"""

from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from simulator.core.faults import BadInput
from simulator.inputs import loader
from simulator.inputs.catalogue import shipped
from simulator.inputs.document import parse

FAST = loader.FastLoader
pytestmark = pytest.mark.skipif(FAST is None, reason="needs PyYAML with libyaml")


def told(text: str, fast: bool) -> tuple[Any, ...]:
    """What a text comes to: its data and their places, or its faults."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "FastLoader", FAST if fast else None)
        try:
            document = parse(text, "x.yaml")
        except BadInput as error:
            return tuple(error.lines)
        return repr(document.data), document.places


PIECES = [
    *(
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "\n",
        "\n  ",
        "\n    ",
        " ",
        ",",
        "#",
        " #",
        "1",
        "1.5",
        "0x1F",
    ),
    *(
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        "\\",
        "\\x41",
        "''",
        "- - ",
        "a:b",
        "http://x",
        "@",
        "`",
        "<<: ",
    ),
    *("&a ", "*a", "&b", "*a :", "!", "!!int ", "!!str ", "!x ", "!!null ", "!!bool ", "!!map "),
    *("|", ">", "|-\n", "%YAML 1.2\n", "---", "...", "\n---\n", "true", "null", "~", "1e999", "="),
    *("\t", "\r", "\r\n", "\x85", "\u2028", "\ufeff", "\ud800", "\0", "\x7f", "é", "😀"),
    *("a b", "[a, b]", "{a: 1}", "a: b\n", "? a\n: b", "é: {x: [1, 2]}\n"),
]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join))
@example("{prefix? ms: 1}")
@example("a: >#")
@example("!")
@example("a: 1\nb: 2\na: 3")
@example("- &a 1\n- &a 2\n- *a")
@example("&a [*a]")
@example("a: *b")
@example("a: {b: [1, 2")
def test_small_texts_are_read_alike(text: str) -> None:
    assert told(text, fast=True) == told(text, fast=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 40 + "]" * 40, "is nested too deeply, or contains itself"),
        ("[" * 200_000, "is nested too deeply"),
        ("a: [" + "1," * 20_000 + "]", "holds more than 20,000 values"),
        ("a: &a [" + "1," * 2_000 + "]\nb: [" + "*a," * 20 + "]", "aliases counted each time"),
        ("a: 1" + "0" * 5_000, "is no int"),
        ("a: 1\n? [b]\n: 2", "expected a word as key"),
    ],
)
def test_limits_are_the_same(text: str, words: str) -> None:
    faults = told(text, fast=True)
    assert words in faults[0]
    assert faults == told(text, fast=False)


@pytest.mark.parametrize("folder", ["scenarios", "hardware_profiles"])
def test_shipped_files_are_read_alike_and_by_libyaml(folder: str) -> None:
    files = sorted((shipped() / folder).rglob("*.yaml"))[::6]
    texts = [file.read_text("utf-8") for file in files]
    assert [told(text, fast=True) for text in texts] == [told(text, fast=False) for text in texts]
    quick = [text for text in texts if not loader.UNLIKE.search(text)]
    assert len(quick) > 0.8 * len(texts)


def test_a_broken_file_is_told_by_pyyaml() -> None:
    assert told("a: [1, 2\nb: 3", fast=True) == (
        "x.yaml:2:2: not valid YAML: expected ',' or ']', but got ':'",
    )
