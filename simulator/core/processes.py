"""Processes beside this one, none of which outlives it."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import Any


class Pool(ProcessPoolExecutor):
    """An executor whose processes never hear Ctrl-C, not even while they start: it is for this
    process to answer.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand over a task, and start the processes that are wanted for it; a Ctrl-C meanwhile
        comes right afterwards.
        """
        with _uninterrupted():
            return super().submit(fn, *args, **kwargs)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let a Ctrl-C within the block come right behind it, and not at all in the processes that the
    block starts.

    They inherit the mask of signals. It holds for one thread: another may take the signal, for
    which Python then calls the handler in the middle of what the main thread does, so that a
    process was started which nobody knows of.
    """
    heard: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if in_main:
        handler = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    else:
        handler = None
    try:
        yield
    finally:
        if in_main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if heard:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of so many new processes, which end with the block."""
    executor = Pool(processes, get_context("spawn"), begin_worker)
    with ended(lambda: executor):
        yield executor


@contextmanager
def ended(executor: Callable[[], Executor]) -> Iterator[None]:
    """Shut an executor down behind the block; processes that an interruption leaves at work are
    terminated.
    """
    before = set(active_children())
    try:
        yield
        executor().shutdown()
    finally:
        for child in set(active_children()) - before:
            child.terminate()  # its work is not wanted any more
        # waits for its thread, which may not meet the end of this process
        executor().shutdown(cancel_futures=True)


def begin_worker() -> None:
    """Prepare a new worker: Ctrl-C is for the parent to answer, and no worker outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
