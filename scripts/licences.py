#!/usr/bin/env python3
"""Checks that the licence of every dependency allows its use: the `licenses.allow` list of deny.toml.

Needs nothing but Python 3.8 and cargo. Prints what is not allowed and exits with 1, or prints a count.
With `--notices PACKAGE TARGET`: prints what has to be said of the work of others in a program built of that package for that target,
name by name: the licence, and the texts that it came with.
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


def metadata_of(*options):
    command = ["cargo", "metadata", "--format-version", "1", *options]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def built_into(metadata, name):
    """The packages of others that a program of this package is made of; what only builds or tests it is none of it."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [package["id"] for package in metadata["packages"] if package["name"] == name and package["source"] is None]
    seen = set()
    while waiting:
        package = waiting.pop()
        if package not in seen:
            seen.add(package)
            normal = [d["pkg"] for d in nodes[package]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
            waiting.extend(normal)
    others = [packages[package] for package in seen if packages[package]["source"] is not None]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def notices(name, target):
    texts, lines = {}, []
    for package in built_into(metadata_of("--filter-platform", target), name):
        folder = Path(package["manifest_path"]).parent
        names = [path for path in sorted(folder.iterdir()) if re.match(r"(licen[cs]e|copying|notice|unlicense)", path.name, re.I)]
        numbers = []
        for path in names:
            if path.is_file():
                text = path.read_text(encoding="utf-8", errors="replace").strip()
                # The same words, however their lines are broken, are printed once.
                numbers.append(texts.setdefault(" ".join(text.split()), (len(texts) + 1, text))[0])
        authors = ", ".join(re.sub(r"\s*<[^>]*>", "", author) for author in package["authors"])
        said = f"{package['name']} {package['version']}{f' (by {authors})' if authors else ''}: {package['license'] or 'see below'}"
        lines.append(f"{said}{'; texts ' + ', '.join(map(str, numbers)) if numbers else ''}")
    print(*lines, sep="\n")
    for number, text in texts.values():
        print(f"\n{'-' * 78}\nText {number}\n\n{text}")


def main():
    if sys.argv[1:2] == ["--notices"]:
        if len(sys.argv) != 4:
            sys.exit("licences.py --notices PACKAGE TARGET")
        notices(*sys.argv[2:])
        return
    check_self()
    allow = allowed_licences((ROOT / "deny.toml").read_text(encoding="utf-8"))
    metadata = metadata_of("--all-features")
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
