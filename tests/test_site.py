"""The site: every page of the books is in it, a broken link or a page that loads something is
found, and it builds.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("jupytext")

from docs import write_site
from docs.write_site import ROOT, check, fitted, gallery, house, kept, page

needs_git = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="needs a checkout to know what belongs to it"
)


def linked(text: str, path: str = "docs/README.md") -> str:
    return write_site.LINK.sub(lambda match: fitted(Path(path), match), text)


@needs_git
def test_links_are_made_to_fit_and_what_git_ignores_becomes_a_word() -> None:
    assert linked("[a](../notebooks)") == "[a](../notebooks/README.md)"
    assert (
        linked("[a](../notebooks/6_your_own_strategy.py)")
        == "[a](../notebooks/6_your_own_strategy.ipynb)"
    )
    assert (
        linked("[a](background/laws.md#strategy-by-strategy)")
        == "[a](background/laws.md#strategy-by-strategy)"
    )
    assert linked("[a](nowhere.md)") == "[a](nowhere.md)", "for Sphinx to complain of"
    assert linked("[spans](timeline.json)", "reports/demo/report.md") == "spans"


@needs_git
def test_a_report_with_an_interactive_page_leads_to_it_and_the_gallery_shows_both() -> None:
    assert 'href="claims.interactive.html"' in page(Path("reports/claims/claims.md"))
    assert "interactive" not in page(Path("reports/iid/iid.md")).partition("##")[0]
    shown = "\n".join(gallery([path for path in kept() if path.parts[0] == "reports"]))
    pages = [path for path in kept() if path.match("reports/*/*.md")]
    assert [path for path in pages if f"]({path})" not in shown] == []
    assert "reports/claims/claims.interactive.html" in shown


def test_the_house_is_drawn_without_a_library() -> None:
    drawn = house(
        'flowchart TD\n    subgraph floor1["floor 1"]\n        api\n    end\n    api --> cli\n  '
        "  api --> cost\n"
    )
    assert '<div class="floor"><div>api<small>cli, cost</small></div></div>' in drawn


def test_broken_links_and_what_would_be_loaded_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="x"></h1><a href="sub/b.html#y">1</a><a href="#x">2</a><a '
        'href="https://b.example">3</a>'
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/b.html").write_text(
        '<p id="y"></p><a href="../a.html#z">1</a><img src="no.svg"><a href="../a%2Ehtml">2</a>'
    )
    (tmp_path / "c.html").write_text(
        '<script src="https://cdn.example/x.js"></script><link href="//cdn.example/y.css">'
    )
    inside, outside, broken = check(tmp_path)
    assert (inside, outside) == (5, 3)
    assert broken == [
        "c.html: loads https://cdn.example/x.js",
        "c.html: loads //cdn.example/y.css",
        "sub/b.html: ../a.html#z",
        "sub/b.html: no.svg",
    ]


@pytest.mark.full
@needs_git
def test_the_site_builds_without_a_broken_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    pytest.importorskip("sphinx")
    monkeypatch.setattr(write_site, "BUILD", tmp_path)
    code = write_site.main()
    printed = capfd.readouterr().out
    assert code == 0, printed
    site = tmp_path / "site"
    assert re.search(r"(\d+) links, 0 broken", printed), printed
    missing = [
        path
        for path in kept()
        if path.suffix == ".md" and not (site / path).with_suffix(".html").is_file()
    ]
    assert missing == []
    assert (site / "reports/validation/validation.interactive.html").is_file()
    assert "where they stop holding" in (site / "searchindex.js").read_text()
    assert "to_frame" in (site / "docs/reference/api.html").read_text()
