"""No way at all for longer than a session lives, receivers that are killed, links that are not there at the start, and those that `--path auto` finds."""

import glob
import signal
import threading
import time

from network import Link, ip
from programs import WORK

IDLE = 2
# So long after there is a way again, or a receiver, all that was held up has arrived, seconds.
BACK = 3.0
ALL = ["--path", "w1", "--path", "w2"]


class Lines:
    """Says a numbered line every 10 ms, until told to end."""

    def __init__(self, sender):
        self.sender, self.said, self.ended = sender, 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ended.wait(0.01):
            self.sender.say(f"line {self.said}\n")
            self.said += 1

    def end(self):
        self.ended.set()
        self.thread.join()
        self.sender.hang_up()


def written(pattern):
    """What sessions wrote, one after the other."""
    return [open(path).read().splitlines() for path in sorted(glob.glob(f"{WORK}/{pattern}"))]


def has_arrived(pattern, count):
    lines = {f"line {n}" for n in range(count)}
    return not lines - {line for session in written(pattern) for line in session}


def within(condition, seconds):
    """How long it took until it held, if it did."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if condition():
            return time.monotonic() - begun
        time.sleep(0.02)
    return None


def check(pattern, lines, sender, misses, code=0):
    """Ends the input and the sender, and compares."""
    lines.end()
    if (ended := sender.end(30)) != code:
        misses.append(f"the sender ended with {ended}, not {code}: {sender.last_line()}")
    sessions = written(pattern)
    arrived = [line for session in sessions for line in session]
    missing = {f"line {n}" for n in range(lines.said)} - set(arrived)
    if missing:
        misses.append(f"{len(missing)} of {lines.said} lines are missing, {min(missing)} among them, and the sender says {sender.last_line()!r}")
    if any(session != sorted(set(session), key=lambda line: int(line.split()[1])) for session in sessions):
        misses.append("within a session a line came twice, or in another order")
    return f"{lines.said} lines in {len(sessions)} sessions, {len(arrived) - len(set(arrived))} twice"


def caught_up(pattern, lines, misses, what):
    """How soon what was held up has arrived."""
    held = lines.said
    took = within(lambda: has_arrived(pattern, held), BACK + 10)
    if took is None or took > BACK:
        misses.append(f"what was held up had not arrived {BACK:.0f} s after {what}")
    return "never" if took is None else f"{took:.1f} s"


def longer_than_it_lives(punctual, links, misses):
    receiver = punctual.recv("--keep-going", "--out", f"{WORK}/outage-{{number}}", name="outage-recv")
    sender = punctual.send(receiver, "--lines", *ALL, "--idle-timeout", f"{IDLE}s", "--reconnect", "60s", name="outage-send")
    lines = Lines(sender)
    took = []
    for lasting in (3 * IDLE, 3 * IDLE + 7):
        time.sleep(2)
        for link in links:
            link.down()
        time.sleep(lasting)
        for link in links:
            link.up()
        took.append(caught_up("outage-0*", lines, misses, f"an outage of {lasting} s"))
    text = check("outage-0*", lines, sender, misses)
    receiver.signal(signal.SIGTERM)
    receiver.end(5)
    return f"{text}; all there {' and '.join(took)} after"


def receiver_killed(punctual, links, misses):
    def start():
        return punctual.recv("--identity", f"{WORK}/own.pem", "--keep-going", "--out", f"{WORK}/reborn-{{number}}", name="reborn-recv")

    receiver = start()
    sender = punctual.send(receiver, "--lines", *ALL, "--idle-timeout", f"{IDLE}s", "--reconnect", "60s", name="reborn-send")
    lines, took = Lines(sender), []
    for absent in (0.0, IDLE + 2):
        time.sleep(2)
        receiver.signal(signal.SIGKILL)
        receiver.end(5)
        time.sleep(absent)
        receiver = start()
        # That it is another that answers shows once the old session is given up.
        time.sleep(IDLE)
        took.append(caught_up("reborn-0*", lines, misses, f"a receiver was there again, {absent:.0f} s after one was killed"))
    # What had been delivered to one that was killed before it had written it is known to be lost to nobody.
    lines.end()
    code = sender.end(30)
    if code != 0:
        misses.append(f"the sender ended with {code}: {sender.last_line()}")
    arrived = {line for session in written("reborn-0*") for line in session}
    missing = sum(f"line {n}" not in arrived for n in range(lines.said))
    if missing > 4:
        misses.append(f"{missing} of {lines.said} lines are missing: more than one that is killed can have in hand")
    receiver.signal(signal.SIGTERM)
    receiver.end(5)
    return f"{lines.said} lines, {missing} gone with those killed; all there {' and '.join(took)} after the session was given up"


def down_at_the_start(punctual, links, misses):
    texts = []
    for down, what in ((links[:1], "the first down"), (links[1:], "the second down"), (links, "both down")):
        name = f"start-{len(texts)}"
        for link in down:
            link.down()
        receiver = punctual.recv("--out", f"{WORK}/{name}", name=f"{name}-recv")
        sender = punctual.send(receiver, "--lines", *ALL, "--connect-timeout", "30s", "--stats-json", name=f"{name}-send")
        lines = Lines(sender)
        time.sleep(3)
        if (early := len(down) < 2) and not any(written(name)):
            misses.append(f"{what}: nothing came by the other within 3 s")
        for link in down:
            link.up()
        up = time.monotonic()
        took = caught_up(name, lines, misses, f"links came up ({what})") if not early else ""

        def both():
            return any(at > up and {"w1", "w2"} <= {p["name"] for p in figures["paths"] if p["health"] == "active"} for at, figures in sender.figures())

        used = within(both, BACK + 5)
        if used is None or used > BACK + 1:
            misses.append(f"{what}: both were not in use {BACK + 1:.0f} s after")
        check(name, lines, sender, misses)
        receiver.end(10)
        texts.append(f"{what}: both in use {'never' if used is None else f'{used:.1f} s'} after it came up" + (f", all there {took} after" if took else ""))
    return "; ".join(texts)


def automatic(punctual, links, misses):
    """Each link is replaced by a new one, of another name, while a session goes on that was told of none."""
    third = Link(3)
    receiver = punctual.recv("--out", f"{WORK}/auto", name="auto-recv")
    sender = punctual.send(receiver, "--lines", "--path", "auto", "--stats-json", name="auto-send")
    lines = Lines(sender)

    def uses(*names):
        return within(lambda: bool(sender.figures()) and set(names) == {p["name"] for p in sender.figures()[-1][1]["paths"] if p["health"] == "active"}, 10)

    steps = [
        ("w1 and w2", lambda: None, ("w1", "w2")),
        ("w3 plugged in", third.plug, ("w1", "w2", "w3")),
        ("w1 deleted", links[0].unplug, ("w2", "w3")),
        ("w2 renamed", lambda: (ip("link set w2 down"), ip("link set w2 name w9"), ip("link set w9 up"), ip("route replace 10.9.0.1 via 10.2.0.2 dev w9 metric 2")), ("w3", "w9")),
        ("w3 deleted", third.unplug, ("w9",)),
        ("w1 made again", links[0].plug, ("w1", "w9")),
    ]
    took = []
    for what, do, expected in steps:
        do()
        used = uses(*expected)
        if used is None:
            paths = [(p["name"], p["health"]) for p in sender.figures()[-1][1]["paths"] if p["health"] != "closed"] if sender.figures() else []
            misses.append(f"{what}: in use are {paths}, not {expected}")
        took.append(f"{what} {'never' if used is None else f'{used:.1f} s'}")
        time.sleep(0.5)
    text = check("auto", lines, sender, misses)
    receiver.end(10)
    for again in (lambda: ip("link set w9 down"), lambda: ip("link set w9 name w2"), links[1].up):
        again()
    return f"{text}; followed: {', '.join(took)}"


PARTS = [
    ("both links down for longer than a session lives", longer_than_it_lives),
    ("the receiver killed, and started again", receiver_killed),
    ("links down at the start", down_at_the_start),
    ("--path auto follows the links", automatic),
]


def run(report, punctual, links):
    for name, part in PARTS:
        report.progress(name)
        misses = []
        report.row(name, part(punctual, links, misses), misses)
