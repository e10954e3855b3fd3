"""vLLM's prefix cache block by block, as benchmarks/live/vllm/README.md says it: what a record of a
scheduler's questions must have been answered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

Key = tuple[int, int, int]
"""A group of layers, the first request with these tokens, and the place of the block in it."""
STATES = range(1, 4)


class Pool:
    """Numbered blocks, those that wait in the order in which they are taken, and the places where
    contents are; 0 is no block.
    """

    def __init__(self, total: int) -> None:
        self.waiting = OrderedDict[int, None]((block, None) for block in range(1, total + 1))
        self.copies: dict[Key, dict[int, None]] = {}
        self.content: dict[int, Key] = {}
        self.users = [0] * (total + 1)

    def find(self, key: Key) -> int:
        return next(iter(self.copies.get(key, {})), 0)

    def fill(self, block: int, key: Key) -> None:
        if block and self.content.get(block) != key:
            self.content[block] = key
            self.copies.setdefault(key, {})[block] = None

    def take(self, count: int) -> list[int]:
        taken = [self.waiting.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self.users[block] = 1
            key = self.content.pop(block, None)
            if key is not None:
                del self.copies[key][block]
                if not self.copies[key]:
                    del self.copies[key]
        return taken

    def use(self, blocks: list[int]) -> None:
        for block in filter(None, blocks):
            self.waiting.pop(block, None)
            self.users[block] += 1

    def free(self, blocks: list[int]) -> None:
        """Full blocks wait at the end, others come first."""
        first = []
        for block in filter(None, blocks):
            self.users[block] -= 1
            if not self.users[block]:
                self.waiting[block] = None
                if block not in self.content:
                    first.append(block)
        for block in reversed(first):
            self.waiting.move_to_end(block, last=False)


class Table:
    """The blocks of a request in one group of layers."""

    def __init__(self, blocks: list[int]) -> None:
        self.blocks = blocks
        self.filled = len(blocks)
        self.left = 0
        """How many of its first blocks were looked through for states that are no longer needed."""
        self.last: int | None = len(blocks) - 1 if blocks else None
        """Where the state before the running one is."""
        self.grown = False


class VllmCache:
    """The cache of a run: ``run`` is a line of a record."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.unit: int = run["unit"]
        self.dropped: int = run["dropped"]
        self.lookahead: int = run["lookahead"]
        self.drafts: int = run.get("drafts", 0)
        self.requests = run["requests"]
        self.ahead = run.get("ahead", False)
        self.hybrid = run.get("layers") == "hybrid"
        self.groups = range(4 if self.hybrid else 1)
        self.pool = Pool(run["blocks"])
        self.tables: dict[int, list[Table]] = {}
        self.granted: dict[int, tuple[int, int]] = {}

    def key(self, group: int, request: int, place: int) -> Key:
        while True:
            _, _, _, earlier, tokens, _, _ = self.requests[request]
            if (place + 1) * self.unit > tokens:
                return group, request, place
            request = earlier

    def hit(self, request: int, known: int) -> int:
        """Return the blocks that a request of so many tokens finds."""
        most = (known - 1) // self.unit
        if self.hybrid and self.dropped:
            most = known // self.unit
        blocks = 0
        while blocks < most and self.pool.find(self.key(0, request, blocks)):
            blocks += 1
        blocks = max(0, blocks - self.dropped)
        while blocks and not all(
            self.pool.find(self.key(group, request, blocks - 1)) for group in self.groups
        ):
            blocks -= 1
        return blocks

    def grant(self, request: int, before: int, now: int, known: int) -> int:
        """Give a request blocks; return the tokens before those that are computed now."""
        if request not in self.tables:
            before = self.hit(request, known) * self.unit
            self._enter(request, before // self.unit)
        else:
            self.let_go(request, before, known)
        end = before + now
        attention, *states = self.tables[request]
        needed = -(-(end + self.lookahead) // self.unit)
        attention.blocks += self.pool.take(max(0, needed - len(attention.blocks)))
        for table in states:
            self._grow(table, -(-end // self.unit))
        self._fill(request, min(end, known))
        self.granted[request] = (end, known)
        return before

    def _enter(self, request: int, hit: int) -> None:
        tables = []
        for group in self.groups:
            found = [self.pool.find(self.key(group, request, place)) for place in range(hit)]
            if group in STATES:
                found[:-1] = [0] * (hit - 1)
            tables.append(Table(found))
            self.pool.use(found)
        self.tables[request] = tables

    def let_go(self, request: int, before: int, known: int) -> None:
        """Free states that are no longer needed once so many tokens are computed."""
        self._fill_ahead(request, known)
        for table in self.tables.get(request, [])[1:]:
            end = min((before - 1) // self.unit, len(table.blocks))
            if end > table.left:
                passed = table.blocks[table.left : end]
                table.blocks[table.left : end] = [0] * len(passed)
                self.pool.free(passed[::-1])
                table.left = end
            if table.last is not None and table.last < -(-before // self.unit) - 1:
                self.pool.free([table.blocks[table.last]])
                table.blocks[table.last] = 0

    def _grow(self, table: Table, running: int) -> None:
        """Give a group of states blocks up to the running one, and one for each draft token."""
        blocks, had = table.blocks, len(table.blocks)
        if running + self.drafts > had:
            if table.grown:
                table.last = had - 1 - self.drafts
            blocks += [0] * (running - 1 - had)
            if table.grown:
                for place in range(had - self.drafts, min(had, running - 1)):
                    blocks.append(blocks[place])
                    blocks[place] = 0
            blocks += self.pool.take(max(0, running + self.drafts - len(blocks)))
        table.grown = True

    def _fill(self, request: int, tokens: int) -> None:
        for group, table in zip(self.groups, self.tables[request], strict=True):
            for place in range(table.filled, tokens // self.unit):
                self.pool.fill(table.blocks[place], self.key(group, request, place))
            table.filled = max(table.filled, tokens // self.unit)

    def _fill_ahead(self, request: int, known: int) -> None:
        """Fill blocks with what the last step yielded, as the scheduler that runs ahead does."""
        end, then_known = self.granted.get(request, (0, 1))
        if self.ahead and end >= then_known:
            self._fill(request, known - 1)

    def leave(self, request: int, known: int) -> None:
        """Free all that a request has."""
        self._fill_ahead(request, known)
        del self.granted[request]
        for table in self.tables.pop(request):
            self.pool.free(table.blocks[::-1])
