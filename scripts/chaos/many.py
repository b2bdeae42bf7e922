"""Ten senders at once, and a thousand sessions."""

import concurrent.futures
import glob
import os
import signal
import time

from programs import WORK


def ten(report, punctual, senders=10, lines=300):
    receiver = punctual.recv("--keep-going", "--dir", f"{WORK}/ten", name="ten")
    report.progress(f"{senders} senders at once")
    texts = ["".join(f"sender {n}, line {line}\n" for line in range(lines)) for n in range(senders)]
    started = [punctual.send(receiver, "--lines", "--path", "w1", "--path", "w2") for _ in range(senders)]
    for line in range(lines):
        for n, program in enumerate(started):
            program.say(f"sender {n}, line {line}\n")
        time.sleep(0.005)
    for program in started:
        program.hang_up()
    codes = [program.end(20) for program in started]
    receiver.signal(signal.SIGTERM)
    own = receiver.end(5)
    misses = [f"sender {n} ended with {code}: {started[n].last_line()}" for n, code in enumerate(codes) if code != 0]
    if own != 0:
        misses.append(f"the receiver ended with {own}: {receiver.last_line()}")
    written = []
    for directory in sorted(glob.glob(f"{WORK}/ten/*")):
        blocks = sorted(glob.glob(f"{directory}/*"))
        written.append("".join(open(block).read() for block in blocks))
    whole = sum(text in written for text in texts)
    if whole != senders or len(written) != senders:
        misses.append(f"{whole} of {senders} arrived whole, in {len(written)} directories")
    report.row(f"{senders} senders at once", f"{whole} arrived whole, {lines} blocks each", misses)


def thousand(report, punctual, sessions=1000, at_once=8):
    os.makedirs(f"{WORK}/sessions")
    receiver = punctual.recv("--keep-going", "--out", f"{WORK}/sessions/{{number}}", name="sessions")
    begun, memory, slowest = time.monotonic(), [], 0.0

    def one(n):
        started = time.monotonic()
        sender = punctual.send(receiver, "--lines", "--quiet")
        sender.say(f"session {n}\n")
        sender.hang_up()
        code = sender.end(20)
        return n, code, sender.last_line(), time.monotonic() - started

    wrong = []
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for done, (n, code, line, took) in enumerate(pool.map(one, range(sessions)), 1):
            slowest = max(slowest, took)
            if code != 0:
                wrong.append(f"session {n} ended with {code}: {line}")
            if done % 50 == 0:
                report.progress(f"{done} of {sessions} sessions")
                memory.append(receiver.memory())
    descriptors = receiver.descriptors()
    receiver.signal(signal.SIGTERM)
    own = receiver.end(5)
    misses = wrong[:5]
    if own != 0:
        misses.append(f"the receiver ended with {own}: {receiver.last_line()}")
    written = sorted(open(path).read() for path in glob.glob(f"{WORK}/sessions/*"))
    if written != sorted(f"session {n}\n" for n in range(sessions)):
        misses.append(f"{len(set(written))} of {sessions} arrived")
    # What it holds after a tenth is what it needs; the rest is not to add to it.
    early, late = memory[max(0, len(memory) // 10)], memory[-1]
    if late > early + 30:
        misses.append(f"the receiver grew from {early:.0f} to {late:.0f} MB")
    if descriptors > 40:
        misses.append(f"the receiver has {descriptors} files open")
    took = time.monotonic() - begun
    text = f"{len(set(written))} arrived, {sessions / took:.0f} a second; receiver {early:.0f} to {late:.0f} MB; slowest {slowest:.1f} s"
    report.row(f"{sessions} sessions, {at_once} at a time", text, misses)
