"""``python -m benchmarks.papers PAPER``: fit the free parameters of a paper to its calibrated cells
and to nothing else.

Writes ``scenarios/papers/PAPER/fitted.yaml``, which ``specsim validate`` reads, or that of an own
catalogue.
"""

from pathlib import Path

import click

from benchmarks.papers.fitting import calibrate
from benchmarks.papers.page import as_yaml, page
from simulator.cli.options import answer, working
from simulator.core.parallel import CORES, spread
from simulator.evidence.fits import Question, papers
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.writing import whole_file


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("name")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the fit [default: fitted.yaml].",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=CORES,
    help="Runs at a time [default: one for each core].",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--catalogue",
    "own",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
)
def main(name: str, out: Path | None, processes: int, as_json: bool, own: tuple[Path, ...]) -> None:
    """Fit the free parameters of the paper NAME to its calibrated cells and to nothing else.

    Prints the fit, the parameters and the cells that decide them, and the residual of every
    calibrated cell.
    """
    with working("starting") as status:
        (chosen,) = papers(Catalogue(own), (name,))
        path = out or chosen.folder / "fitted.yaml"
        with whole_file(path, renewed=out is None) as file, spread(processes) as processes_map:

            def show_residual(error: float) -> None:
                status.update(f"fitting: residual {100 * error:.2f} % (root mean square)")

            fit = calibrate(
                chosen, lambda questions: processes_map(Question.answer, questions), show_residual
            )
            if file:
                file.write(as_yaml(fit.fitted(name)))
    data = {
        "paper": name,
        "terms": fit.terms,
        "residuals": fit.residuals,
        "runs": fit.runs,
        "written": str(path),
    }
    answer(as_json, lambda: data, lambda: page(chosen, fit), f"written: {path}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.papers")
