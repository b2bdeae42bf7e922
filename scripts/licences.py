#!/usr/bin/env python3
"""Checks that the licence of every dependency allows its use: the `licenses.allow` list of deny.toml.

Needs nothing but Python 3.8 and cargo. Prints what is not allowed and exits with 1, or prints a count.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def allowed_licences(text):
    """The `allow` array of the `[licenses]` table. (tomllib came only with Python 3.11.)"""
    text = "\n".join(line.split("#", 1)[0] for line in text.splitlines())
    table = re.search(r"^\[licenses\]$(.*?)(?=^\[|\Z)", text, re.M | re.S)
    array = table and re.search(r"^allow\s*=\s*\[(.*?)\]", table.group(1), re.M | re.S)
    if not array:
        sys.exit("deny.toml: no licenses.allow")
    return set(re.findall(r'"([^"]+)"', array.group(1)))


class Expression:
    """An SPDX licence expression: OR binds weaker than AND, AND weaker than WITH."""

    def __init__(self, text):
        # Cargo's old notation for OR is a slash.
        self.tokens = re.findall(r"[()]|[^\s()]+", text.replace("/", " OR "))
        self.at = 0

    def allowed_by(self, allow):
        result = self.any(allow)
        if self.at != len(self.tokens):
            raise ValueError(f"unexpected {self.tokens[self.at]!r}")
        return result

    def next_is(self, word):
        if self.at < len(self.tokens) and self.tokens[self.at] == word:
            self.at += 1
            return True
        return False

    def take(self):
        if self.at >= len(self.tokens) or self.tokens[self.at] in {"OR", "AND", "WITH", ")"}:
            raise ValueError("a licence is missing")
        self.at += 1
        return self.tokens[self.at - 1]

    def any(self, allow):
        result = self.all(allow)
        while self.next_is("OR"):
            # Both sides are read, whatever the first says.
            result = self.all(allow) | result
        return result

    def all(self, allow):
        result = self.one(allow)
        while self.next_is("AND"):
            result = self.one(allow) & result
        return result

    def one(self, allow):
        if self.next_is("("):
            result = self.any(allow)
            if not self.next_is(")"):
                raise ValueError("a parenthesis is not closed")
            return result
        licence = self.take()
        if self.next_is("WITH"):
            # Allowed only if listed with its exception, as in cargo-deny.
            return f"{licence} WITH {self.take()}" in allow
        return licence in allow


def check_self():
    allow = {"MIT", "ISC", "Apache-2.0 WITH LLVM-exception"}
    for text, expected in [
        ("MIT", True), ("GPL-3.0", False), ("GPL-3.0 OR MIT", True), ("GPL-3.0/MIT", True), ("MIT AND GPL-3.0", False),
        ("MIT OR GPL-3.0 AND X", True), ("(MIT OR X) AND ISC", True), ("(MIT OR X) AND Y", False),
        ("Apache-2.0 WITH LLVM-exception", True), ("Apache-2.0", False), ("MIT WITH Y OR ISC", True),
    ]:
        assert Expression(text).allowed_by(allow) == expected, text
    for text in ["", "MIT OR", "(MIT", "MIT ISC", "AND", "MIT)"]:
        try:
            Expression(text).allowed_by(allow)
        except ValueError:
            continue
        raise AssertionError(f"{text!r} should be refused")


def main():
    check_self()
    allow = allowed_licences((ROOT / "deny.toml").read_text(encoding="utf-8"))
    command = ["cargo", "metadata", "--format-version", "1", "--all-features"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    bad = []
    for package in metadata["packages"]:
        expression = package["license"]
        try:
            if expression and Expression(expression).allowed_by(allow):
                continue
            reason = expression or f"no licence expression (file: {package['license_file']})"
        except ValueError as error:
            reason = f"{expression}: {error}"
        bad.append(f"{package['name']} {package['version']}: {reason}")
    if bad:
        print("licences that deny.toml does not allow:", *sorted(bad), sep="\n  ")
        sys.exit(1)
    print(f"{len(metadata['packages'])} packages, all licences allowed")


if __name__ == "__main__":
    main()
