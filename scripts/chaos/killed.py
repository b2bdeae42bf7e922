"""SIGTERM to either side, in each phase: whoever gets it ends, and the other is told at once."""

import random
import signal
import time

from network import PORT
from programs import WORK

# Within this, seconds, who was told to stop has stopped, and its peer knows.
AT_ONCE = 2.0


def ended(program, since, codes, who, misses, within=AT_ONCE):
    """Its code and how long it took since then."""
    code = program.end(30)
    took = program.ended_at - since if program.ended_at else float("inf")
    if code not in codes:
        misses.append(f"the {who} ended with {code}, not {' or '.join(map(str, codes))}: {program.last_line()}")
    if took > within:
        misses.append(f"the {who} took {took:.1f} s: {program.last_line()}")
    return f"{who} {code} after {took:.2f} s"


def terminate(program):
    program.signal(signal.SIGTERM)
    return time.monotonic()


def connected(punctual, *arguments):
    """A receiver and a sender with a session, of which a line has been written."""
    out = f"{WORK}/killed"
    open(out, "w").close()
    receiver = punctual.recv("--out", out)
    sender = punctual.send(receiver, "--lines", *arguments)
    sender.say("a line\n")
    end = time.monotonic() + 20
    while open(out).read() != "a line\n":
        if time.monotonic() > end:
            raise RuntimeError(f"nothing arrived: {sender.said()} {receiver.said()}")
        time.sleep(0.01)
    return receiver, sender


def streaming(punctual):
    receiver, sender = connected(punctual)
    for n in range(100):
        sender.say(f"line {n}\n")
        time.sleep(0.002)
    return receiver, sender


def sender_calls_nobody(punctual, misses):
    receiver = punctual.recv("--out", "/dev/null")
    receiver.address = f"10.1.0.77:{PORT}"
    sender = punctual.send(receiver, "--lines")
    time.sleep(0.5)
    text = ended(sender, terminate(sender), [143], "sender", misses)
    terminate(receiver)
    receiver.end(5)
    return text


def sender_in_the_handshake(punctual, misses):
    receiver = punctual.recv("--out", "/dev/null")
    receiver.signal(signal.SIGSTOP)
    sender = punctual.send(receiver, "--lines")
    time.sleep(0.5)
    text = ended(sender, terminate(sender), [143], "sender", misses)
    receiver.signal(signal.SIGCONT)
    terminate(receiver)
    receiver.end(5)
    return text


def sender_connected(punctual, misses):
    receiver, sender = connected(punctual)
    since = terminate(sender)
    return f"{ended(sender, since, [143], 'sender', misses)}, {ended(receiver, since, [0], 'receiver', misses)}"


def sender_streaming(punctual, misses):
    receiver, sender = streaming(punctual)
    since = terminate(sender)
    text = f"{ended(sender, since, [143], 'sender', misses)}, {ended(receiver, since, [0], 'receiver', misses)}"
    lines = open(f"{WORK}/killed").read().splitlines()
    if lines != ["a line"] + [f"line {n}" for n in range(len(lines) - 1)]:
        misses.append("what was written has holes")
    if not any(f"{len(lines)} blocks: " in line for _, line in sender.lines):
        misses.append(f"{len(lines)} lines were written, and the sender says {sender.said()[-200:]!r}")
    return text


def sender_waits_for_the_end(punctual, misses):
    receiver, sender = connected(punctual, "--finish-timeout", "60s", "--idle-timeout", "60s")
    receiver.signal(signal.SIGSTOP)
    sender.say("another\n")
    sender.hang_up()
    time.sleep(0.5)
    terminate(sender)
    time.sleep(0.5)
    if sender.process.poll() is not None:
        misses.append("the sender did not wait for what was under way")
    text = ended(sender, terminate(sender), [143], "sender", misses) + " of the second signal"
    since = time.monotonic()
    receiver.signal(signal.SIGCONT)
    return f"{text}, {ended(receiver, since, [0, 7], 'receiver', misses)} that it woke"


def receiver_alone(punctual, misses):
    receiver = punctual.recv("--out", "/dev/null")
    return ended(receiver, terminate(receiver), [143], "receiver", misses)


def receiver_in_the_handshake(punctual, misses, tries=30):
    codes, slowest = {}, 0.0
    draw = random.Random(1)
    for _ in range(tries):
        receiver = punctual.recv("--out", "/dev/null")
        sender = punctual.send(receiver, "--lines")
        time.sleep(draw.uniform(0, 0.06))
        since = terminate(receiver)
        # It was called, or was not there any more, as the moment had it.
        ended(receiver, since, [143, 0], "receiver", misses)
        ended(sender, since, [4, 7, 9], "sender", misses)
        codes[sender.process.returncode] = codes.get(sender.process.returncode, 0) + 1
        slowest = max(slowest, sender.ended_at - since if sender.ended_at else float("inf"))
    told = ", ".join(f"{count} × {code}" for code, count in sorted(codes.items()))
    return f"{tries} moments: sender {told}, after {slowest:.2f} s at most"


def receiver_connected(punctual, misses):
    receiver, sender = connected(punctual)
    since = terminate(receiver)
    return f"{ended(receiver, since, [143], 'receiver', misses)}, {ended(sender, since, [7], 'sender', misses)}"


def receiver_streaming(punctual, misses):
    receiver, sender = streaming(punctual)
    since = terminate(receiver)
    return f"{ended(receiver, since, [143], 'receiver', misses)}, {ended(sender, since, [7], 'sender', misses)}"


def receiver_afterwards(punctual, misses):
    receiver = punctual.recv("--keep-going", "--out", "/dev/null")
    sender = punctual.send(receiver, "--lines")
    sender.say("a line\n")
    sender.hang_up()
    sender.end(10)
    return ended(receiver, terminate(receiver), [0], "receiver", misses)


PHASES = [
    ("sender, nobody answers", sender_calls_nobody),
    ("sender, in the handshake", sender_in_the_handshake),
    ("sender, connected", sender_connected),
    ("sender, amid its blocks", sender_streaming),
    ("sender, at its end", sender_waits_for_the_end),
    ("receiver, nobody called", receiver_alone),
    ("receiver, in the handshake", receiver_in_the_handshake),
    ("receiver, connected", receiver_connected),
    ("receiver, amid blocks", receiver_streaming),
    ("receiver, after its sender", receiver_afterwards),
]


def run(report, punctual):
    for name, phase in PHASES:
        report.progress(f"SIGTERM: {name}")
        misses = []
        report.row(f"SIGTERM: {name}", phase(punctual, misses), misses)
