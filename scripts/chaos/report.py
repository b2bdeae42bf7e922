"""What was found: a progress line, a table, an object for programs."""

import json
import shutil
import sys
import time


class Report:
    def __init__(self, quiet):
        self.rows, self.begun = [], time.monotonic()
        self.bar = sys.stderr.isatty() and not quiet
        self.quiet = quiet

    def progress(self, text):
        """What is being done: a line that is kept up to date on a terminal, else a line each."""
        if self.bar:
            width = shutil.get_terminal_size().columns
            print(f"\r\x1b[2K{time.monotonic() - self.begun:4.0f} s  {text}"[: width + 4], end="", file=sys.stderr, flush=True)
        elif not self.quiet:
            print(f"{time.monotonic() - self.begun:4.0f} s  {text}", file=sys.stderr, flush=True)

    def row(self, what, outcome, misses):
        """One line of the table: `misses` are sentences that say what did not hold."""
        self.rows.append({"what": what, "outcome": outcome, "misses": list(misses)})

    def failed(self):
        return sum(bool(row["misses"]) for row in self.rows)

    def print(self):
        if self.bar:
            print("\r\x1b[2K", end="", file=sys.stderr)
        wide = max(len(row["what"]) for row in self.rows)
        for row in self.rows:
            print(f"{'MISS' if row['misses'] else ' ok '}  {row['what']:<{wide}}  {row['outcome']}")
            for miss in row["misses"]:
                print(f"      {'':<{wide}}  {miss}")
        print(f"{len(self.rows) - self.failed()} of {len(self.rows)} hold, in {time.monotonic() - self.begun:.0f} s")

    def json(self, arguments):
        return json.dumps({"command": arguments, "rows": self.rows, "failed": self.failed()}, indent=1)
