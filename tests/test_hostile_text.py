"""Whatever a file says of itself, a report shows it as words: no tag, no link, no fence, no script
comes of it.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.report.blocks import Code, Hyperlink, Listing, Strong
from simulator.report.markdown import inline, plain, shown

HOSTILE = (
    "<script>alert(1)</script> </title><img src=x onerror=alert(1)> ]]> --> | `x` ``` "
    "[a](javascript:alert(1)) $\\frac$ [/b]"
)
DEVICE = """
name: {words}
about: {words}
kind: gpu
memory_gb: {{value: 80, source: {words}, confidence: datasheet}}
memory_bandwidth_gb_s: {{value: 2000, source: {words}}}
peak_tflops: 300
matmul: {{default: {{fixed_us: 5, memory_efficiency: 0.8, compute_efficiency: 0.7, p_norm: 4}}}}
attention: {{fixed_us: 17, memory_efficiency: 0.8, compute_efficiency: 0.25, p_norm: 1.2}}
small_operations: {{fixed_us: 18, memory_efficiency: 0.6, compute_efficiency: 1, p_norm: 1}}
"""


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    words = "'" + HOSTILE.replace("'", "''") + "'"
    (folder / "device.yaml").write_text(DEVICE.format(words=words))
    like = "like: vanilla_qwen3_32b_a100\nrequests: {count: 2, output_tokens: 24}\n"
    (folder / "x.yaml").write_text(f"{like}about: {words}\ntarget: {{device: ./device.yaml}}\n")
    result = CliRunner().invoke(main, ["run", str(folder / "x.yaml"), "--out", str(folder / "rep")])
    assert result.exit_code == 0, result.output
    return folder / "rep"


def test_html_has_its_own_tags_alone(report: Path) -> None:
    page = Tags()
    page.feed((report / "report.html").read_text("utf-8"))
    assert sum(tag == "script" for tag, _ in page.found) == (report / "report.html").read_text(
        "utf-8"
    ).count("</script>")
    assert not [
        tag
        for tag, held in page.found
        if tag == "img" or any(name.startswith("on") for name in held)
    ]
    assert not [
        held["href"] for _, held in page.found if (held.get("href") or "").startswith("javascript")
    ]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in (report / "report.html").read_text("utf-8")


def test_markdown_says_it_in_words_outside_its_listings(report: Path) -> None:
    text = (report / "report.md").read_text("utf-8")
    fence, words = "", []
    for line in text.splitlines():
        ticks = re.match("`{3,}", line)
        if ticks and (not fence or line == fence):
            fence = "" if fence else ticks[0]
        elif not fence:
            words.append(re.sub(r"<details><summary>[\w ,]+</summary>|</details>", "", line))
    assert not fence
    assert any("alert" in line for line in words)
    assert not [
        line for line in words if re.search(r"(?<!\\)<[A-Za-z/!?]|\]\(javascript|(?<!\\)```", line)
    ]


def test_pictures_are_xml_without_a_script(report: Path) -> None:
    for path in report.glob("*.svg"):
        root = ElementTree.fromstring(path.read_text("utf-8"))
        assert not [
            node
            for node in root.iter()
            if str(node.tag).endswith("script") or any(name[:2] == "on" for name in node.attrib)
        ]


def test_marks_are_escaped_and_plain_words_stay_as_they_are() -> None:
    assert (
        plain("a < b, <0.001, x[i] and 3 * 4 - 2 (or so)")
        == "a < b, <0.001, x[i] and 3 * 4 - 2 (or so)"
    )
    assert plain("# no title\n- no item") == "\\# no title\n\\-\\ no item".replace("\\ ", " ")
    assert inline(Strong("<b>")) == "**\\<b>**"
    assert inline(Code("a`b")) == "`` a`b ``"
    assert inline(Hyperlink("<b>", "x.md")) == "[\\<b>](x.md)"
    assert next(shown(Listing("```\nx"))) == "````\n```\nx\n````"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "typed",
    [
        "explain ./x.yaml",
        "run ./x.yaml --long --out rep",
        "compare ./x.yaml durations_only --long",
        "list device --catalogue .",
        "list scenario --catalogue .",
        "show evil --catalogue .",
        "show evil_device --catalogue .",
    ],
)
def test_a_terminal_gets_no_orders_from_a_file(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither colours nor titles of windows, nor a line that is read from the right."""
    monkeypatch.chdir(tmp_path)
    words = 'about: "words \\e[2J\\e]0;x\\a\\u202e \\u009b31m"\n'
    for file, text in {
        "x.yaml": f"like: durations_only\nrequests: {{count: 2}}\n{words}",
        "scenarios/evil.yaml": f"like: durations_only\n{words}",
        "hardware_profiles/devices/evil_device.yaml": f"like: h100_sxm\n{words}"
        'memory_gb: {value: 80, source: "words \\e[31m"}\n',
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    result = CliRunner().invoke(main, typed.split())
    assert result.exit_code == 0, result.output
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", result.output)
    assert "words" in result.output
