"""The study of Speculative Streaming: trees of streams by their tree factor."""

from simulator.studies.of_papers import StudyOfPaper

STUDIES = (
    StudyOfPaper(
        "streams",
        "simulator.papers.speculative_streaming.streams",
        line="Speculative Streaming by its tree factor, pruned or not.",
        help="""\
Speculative Streaming SCENARIO over its tree factor k, pruned or not, and against decoding
with a draft.""",
        status="sweeping the tree",
        several=False,
    ),
)
