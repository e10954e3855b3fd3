"""The studies of SpecPipe: draft trees of a recording, and the network between servers."""

from simulator.studies.of_papers import StudyOfPaper

STUDIES = (
    StudyOfPaper(
        "trees",
        "simulator.papers.specpipe.trees",
        line="What a token costs with every draft tree of a recording.",
        help="What a token costs with all draft trees that the trace of a SpecPipe SCENARIO holds.",
        status="sweeping the tree",
    ),
    StudyOfPaper(
        "network",
        "simulator.papers.specpipe.network",
        line="What the network between servers costs SpecPipe.",
        help="""\
What the network between servers costs a SpecPipe SCENARIO, with sending beside pruning and
after it.

With --out, the link between the servers of the last SCENARIO is swept over latencies and
rates.""",
        status="simulating",
        if_pictured="swept",
    ),
)
