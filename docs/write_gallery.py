"""Write ``docs/how-to/gallery.md``: questions, each with the picture and the command of a report
that is kept.

``python3 dev.py reference`` runs it. An answer is one sentence of ours; every figure in it stands
in the report, so that a report made anew with other figures fails the test until its answer says
so, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "how-to" / "gallery.md"
NUMBER = re.compile(r"(?<![\w.,-])\d+(?:[,.]\d+)*(?!\w)")
MADE_BY = re.compile(r"^## Made by\n\n```\n(specsim .*)$", re.MULTILINE)
PICTURE = re.compile(r"^!\[(.*)\]\((\w+\.svg)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    """What somebody asks, the sentence that answers, and the kept report that shows it."""

    asked: str
    answer: str
    report: str
    picture: str = ""
    command: str = ""

    @property
    def page(self) -> Path:
        """The report that is kept."""
        return ROOT / "reports" / self.report

    @property
    def drawn(self) -> tuple[str, Path]:
        """What is in the picture, and its file; the report's first one unless another is named."""
        found = PICTURE.findall(self.page.read_text("utf-8"))
        chosen = [one for one in found if one[1] == self.picture] or found
        title, name = chosen[0]
        return title, self.page.parent / name

    @property
    def asks(self) -> str:
        """The command that makes the report."""
        if self.command:
            return self.command
        (made,) = MADE_BY.findall(self.page.read_text("utf-8"))
        return str(made)

    def unsaid(self) -> list[str]:
        """List the figures of the answer that the report does not hold."""
        held = {*NUMBER.findall(self.page.read_text("utf-8"))}
        return [number for number in NUMBER.findall(self.answer) if number not in held]


QUESTIONS = (
    Question(
        "How long may a draft take before it costs time?",
        "Mirror-SD drafts for 24.6 ms while the upper layers work for 33.4 ms: the window is free, "
        "and one token takes 18.6 ms in place of 55.6.",
        "demo/report.md",
        picture="window_sweep.svg",
    ),
    Question(
        "Up to which batch does each method pay?",
        "On Vicuna-7B and one A100 a draft model pays below 118 requests at once; chains of four "
        "rows still pay at 128, and wide trees stop far earlier.",
        "whatif/batch_crossovers.md",
    ),
    Question(
        "Does a bigger draft pay?",
        "Seldom: beside Qwen3-32B a draft that is 2.9 times as big has to be kept 88% of the time "
        "to come level, and one that is 13.7 times as big never does.",
        "whatif/bigger_draft.md",
    ),
    Question(
        "What do the Neural Engines of an M2 Ultra bring as drafters?",
        "One client gains: 18.6 ms a token, if the draft works beside the target. With 16 clients "
        "the draft belongs on the GPU.",
        "whatif/m2_ultra_npu.md",
    ),
    Question(
        "How many tokens should a draft on the CPU write?",
        "At most as many as fit beside one pass of the target: 25 with a quick draft, 8 with a "
        "slow one. One token more costs its whole time.",
        "budgets/duodecoding_a800.md",
    ),
    Question(
        "How wide should the draft tree of a pipeline be?",
        "As wide as a tile of the GPU: 64 rows on one server of eight cards, and 16 where two "
        "servers share the layers.",
        "pipelines/trees.md",
    ),
    Question(
        "When does a slow network ruin a pipeline?",
        "Late: 10 Gbit/s cost 0.4 % here, and a token takes twice as long only from 32 ms of "
        "latency on.",
        "whatif/ten_gbe.md",
    ),
    Question(
        "Does speculation pay for a mixture of experts?",
        "With a good head, yes: Qwen3-30B-A3B gains up to 2.10 times with EAGLE-3; with a weak "
        "head or n-grams it hardly gains at all.",
        "experts/verdict.md",
    ),
    Question(
        "How wrong is the textbook formula for accepted tokens?",
        "It promises up to 34.6 % too much for a tree, and up to 18.7 % too little for look-up.",
        "iid/iid.md",
        command="specsim trace iid six_flavours_greedy",
    ),
    Question(
        "Old cards or new ones for a chat with a 70B model?",
        "For little traffic eight RTX 3090 at 3.744 USD an hour; filled up, four A100 are cheaper "
        "per token.",
        "whatif/chat_llama_70b/plan.md",
    ),
    Question(
        "Does a draft save machines?",
        "It saves two of 8 here: 6 A100 with a draft cost 12.96 USD an hour, plain decoding needs "
        "8 for 17.28.",
        "plans/chat_qwen3_32b/plan.md",
    ),
)
HEAD = """# Gallery: a question, a picture, a command

After this page you can put the same questions to your own model and card. Each answer is one
sentence or two, and one picture. The command below it made both: type it from a checkout, or
change the names in it first.

Acceptance is mostly recorded from small models and stands in for larger ones;
[trust](../background/trust.md) says what follows from that.

<!-- made by `python3 dev.py reference`; the questions stand in docs/write_gallery.py -->
"""


def section(question: Question) -> str:
    """Write one question of the page."""
    title, picture = question.drawn
    report = f"../../reports/{question.report}"
    return (
        f"\n## {question.asked}\n\n"
        f"{question.answer} [The whole report]({report}).\n\n"
        f"![{title}](../../{picture.relative_to(ROOT)})\n\n"
        f"    $ {question.asks}\n"
    )


def page() -> str:
    """Write the whole page."""
    return HEAD + "".join(section(question) for question in QUESTIONS)


def main() -> None:
    """Write the page into the books."""
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
