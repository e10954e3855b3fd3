"""``python -m simulator`` is the command ``specsim``."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C just ends it until there is something to tidy up, imports included
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from simulator.cli.main import main

if __name__ == "__main__":
    main(prog_name="specsim")
