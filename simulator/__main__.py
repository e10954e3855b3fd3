"""``python -m simulator`` is the command ``specsim``."""

import gc
import signal

# a command makes many objects and few circles; looking for circles often is a tenth of its time
gc.set_threshold(100_000, 20, 20)
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C just ends it until there is something to tidy up, imports included
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from simulator.cli.main import main

if __name__ == "__main__":
    main(prog_name="specsim")
