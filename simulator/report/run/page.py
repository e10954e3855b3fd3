"""The page of a run (``specsim run``): the answer first, then how it comes about, then all
inputs.
"""

from collections.abc import Sequence

from simulator.report.blocks import Block, Bullets, Page, Section
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.pages import what_if
from simulator.report.run import (
    acceptance,
    answer,
    brief,
    caches,
    gaps,
    memory,
    packages,
    scaling,
    serving,
    steps,
    window,
)
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.uncertain.draws import Interval
from simulator.studies.what_if import WhatIf
from simulator.studies.window import SweepPoint


def run_page(
    result: RunResult,
    sweep: Sequence[SweepPoint],
    speedup: Interval | None = None,
    law: WhatIf | None = None,
) -> Page:
    """Return the page of a run. ``sweep``: other windows, if any; ``speedup``: its interval;
    ``law``: what sliders are over.
    """
    scenario = result.scenario
    sections = [
        gaps.section(result),
        steps.section(result),
        serving.section(result),
        caches.section(result.simulated),
        scaling.section(result),
        memory.section(scenario),
        acceptance.of_strategy(result),
        window.section(result, sweep),
        _sliders(law),
        acceptance.kept_tokens(result),
        steps.steps_drawn(),
        *packages.sections(result),
        _notes(result),
        Section(PROVENANCE, list(provenance_blocks(scenario)), terminal=False),
        Section(RESOLVED, list(resolved_blocks(scenario)), terminal=False),
    ]
    return Page(
        title=f"{scenario.name}: {scenario.method_name}",
        about=scenario.about,
        answer=answer.headline(result),
        highlights=list(answer.highlights(result, speedup)),
        opening=[*answer.paragraphs(result, speedup), steps.timeline(result)],
        sections=[section for section in sections if section.blocks],
        command=result.command,
        standing=brief.standing(result, speedup),
        decides=result.decision is not None,
    )


def _sliders(law: WhatIf | None) -> Section:
    blocks = list(what_if.blocks(law)) if law else []
    return Section(what_if.TITLE, blocks, terminal=False)


def _notes(result: RunResult) -> Section:
    blocks: list[Block] = []
    if result.caveats:
        blocks.append(Bullets(result.caveats))
    return Section("Notes", blocks)
