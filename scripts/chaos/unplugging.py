"""A live video over two links that are unplugged in every way."""

import os
import signal
import subprocess
import threading
import time

import video
from network import NAT_PORT, Nat
from programs import WORK

# How long a frame may take, seconds: what the program's own examples say.
DEADLINE = 0.2
# Within this, a path is back in use once its link is back, and frames arrive again once there is a way.
BACK = 6.0
RESUMED = 1.0
# Frames under way when a link dies, at most, one way or the other: two at the start, and two at the end of it.
IN_FLIGHT = 4
FPS = 30
# Every so many frames is a key frame.
GROUP = 30


class Pump:
    """Carries the encoder's output to the sender, keeps a copy, and notes when each byte came."""

    def __init__(self, encoder, to, copy):
        self.encoder, self.to, self.copy, self.came = encoder, to, copy, []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        at = 0
        with open(self.copy, "wb") as copy, self.to:
            while data := os.read(self.encoder.stdout.fileno(), 65536):
                self.came.append((at, time.monotonic()))
                at += len(data)
                copy.write(data)
                try:
                    self.to.write(data)
                    self.to.flush()
                except BrokenPipeError:
                    return

    def when(self, offset):
        """When the byte at `offset` came."""
        return max((time for at, time in self.came if at <= offset), default=0.0)


def ways(links, sender, receiver, nat):
    """(name, for how long, whether there is a way meanwhile, what begins it, what ends it)"""
    one, two = links
    both = [lambda do=do: [getattr(link, do)() for link in links] for do in ("down", "up")]
    for link in links:
        name = link.name
        yield f"{name} down", 1.5, True, link.down, link.up
        yield f"{name} deleted, made again", 1.5, True, link.unplug, link.plug
        yield f"{name} has another address", 0.5, True, link.another_address, lambda: None
        for there, towards in ((False, "nothing gets there"), (True, "nothing comes back")):
            yield f"{name}: {towards}", 1.5, True, (lambda l=link, t=there: l.deaf(t)), (lambda l=link, t=there: l.hearing(t))
    yield "w1 has no route", 1.5, True, one.no_route, one.route_again
    yield "w2 rebound by its NAT", 0.5, True, nat.rebind, lambda: None
    yield "w2 rebound twice in 0.1 s", 0.5, True, lambda: (nat.rebind(), time.sleep(0.1), nat.rebind()), lambda: None
    yield "both links down", 3.0, False, *both
    stopped = (lambda s: lambda: s.signal(signal.SIGSTOP)), (lambda s: lambda: s.signal(signal.SIGCONT))
    for who, program in (("receiver", receiver), ("sender", sender)):
        yield f"the {who} sleeps for 5 s", 5.0, False, stopped[0](program), stopped[1](program)


def healthy(sender, since):
    """When both links' paths were in use after `since`, if they have been."""
    for at, figures in sender.figures():
        if at > since and not ill(figures):
            return at
    return None


def ill(figures):
    """Whether a link's path is missing or suspect, by the sender's figures, of which there are some each second."""
    return not {"w1", "w2"} <= {path["name"] for path in figures["paths"] if path["health"] == "active"}


def wait(condition, within):
    end = time.monotonic() + within
    while time.monotonic() < end:
        if (found := condition()) is not None:
            return found
        time.sleep(0.02)
    return None


def late_at(receiver, moment):
    """Blocks that were late up to a moment: in the last figures before it, and in the first after it."""
    figures = receiver.figures()
    before = max((f["late"] for at, f in figures if at <= moment), default=0)
    after = next((f["late"] for at, f in figures if at > moment), None)
    return before, before if after is None else after


def run(report, punctual, links, seconds):
    nat = Nat()
    sent, received = f"{WORK}/sent.h264", f"{WORK}/received.h264"
    receiver = punctual.recv("--out", received, "--stats-json", name="recv")
    arguments = ["--h264", "--deadline", f"{DEADLINE * 1000:.0f}ms", "--stats-json", "--json"]
    arguments += ["--path", "w1", "--path", f"w2=10.2.0.2:{NAT_PORT}"]
    sender = punctual.send(receiver, *arguments, name="send")
    encode = f"-v error -re -f lavfi -i testsrc2=size=640x360:rate={FPS} -t {seconds} -c:v libx264 -preset ultrafast"
    encode += f" -tune zerolatency -g {GROUP} -b:v 1500k -f h264 -"
    encoder = subprocess.Popen(
        ["ffmpeg", *encode.split()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    pump = Pump(encoder, sender.process.stdin, sent)
    events = []
    try:
        begun = time.monotonic()
        if wait(lambda: healthy(sender, begun), 15) is None:
            report.row("live video, two links", "the session did not begin", [sender.said()[-300:]])
            return
        for name, lasting, has_way, begin, end in ways(links, sender, receiver, nat):
            if encoder.poll() is not None:
                report.row(name, "the video was over before", ["--seconds is too short"])
                continue
            report.progress(f"live video: {name}")
            start = time.monotonic()
            begin()
            time.sleep(lasting)
            end()
            stop = time.monotonic()
            back = wait(lambda: healthy(sender, stop), BACK)
            doubted = any(start < at <= stop and ill(figures) for at, figures in sender.figures())
            event = {"name": name, "way": has_way, "start": start, "stop": stop, "doubted": doubted}
            events.append({**event, "back": back and back - stop})
            time.sleep(0.5)
        report.progress("live video: to its end")
        if (left := seconds - (time.monotonic() - begun)) > 0:
            time.sleep(left)
    finally:
        try:
            encoder.wait(30)
        except subprocess.TimeoutExpired:
            encoder.kill()
    pump.thread.join(20)
    codes = sender.end(20), receiver.end(10)
    nat.ended = True
    report.progress("live video: comparing")
    judge(report, events, pump, sender, receiver, codes, sent, received)


def judge(report, events, pump, sender, receiver, codes, sent, received):
    with open(sent, "rb") as a, open(received, "rb") as b:
        originals, arrived = video.pictures(a.read()), video.pictures(b.read())
    whens = [pump.when(offset) for offset, _, _ in originals]
    places, strangers = video.match([data for _, data, _ in originals], [data for _, data, _ in arrived])
    missing = sorted(set(range(len(originals))) - set(places))
    # A frame that depends on one that is missing fits in no more.
    excused, why = {}, None
    for n, ((_, _, key), when) in enumerate(zip(originals, whens)):
        here = next((e for e in events if not e["way"] and e["start"] - 2 * DEADLINE <= when <= e["stop"] + RESUMED), None)
        why = here if here else None if key else why
        excused[n] = why
    late_in_events = 0
    for event in events:
        until = event["stop"] + (event["back"] or BACK)
        before, after = late_at(receiver, event["start"])[0], late_at(receiver, until)[1]
        late = after - before
        late_in_events += late
        end = until if event["way"] else event["stop"] + RESUMED + GROUP / FPS
        gone = [n for n in missing if excused[n] is event or event["start"] - 2 * DEADLINE <= whens[n] <= end and excused[n] is None]
        misses = []
        if event["back"] is None:
            misses.append(f"both paths were not in use again within {BACK:.0f} s")
        if event["way"] and gone:
            misses.append(f"{len(gone)} frames are missing though there was a way: {gone[:5]}")
        if event["way"] and late > IN_FLIGHT:
            misses.append(f"{late} frames were late, more than were under way")
        back = f"both paths in use {event['back']:.1f} s after" if event["back"] is not None else "not back"
        lost = "none missing" if not gone else f"{len(gone)} missing"
        doubted = "in doubt meanwhile" if event["doubted"] else "no doubt meanwhile"
        report.row(event["name"], f"{lost}, {late} late; {doubted}, {back}", misses)
    figures = receiver.figures()
    late = figures[-1][1]["late"] if figures else 0
    own, decoded = video.hashes(sent)[0], video.hashes(received)
    misses = []
    if stray := [n for n in missing if excused[n] is None]:
        misses.append(f"{len(stray)} frames are missing that no outage explains: {stray[:8]}")
    if strangers:
        misses.append(f"{strangers} pictures arrived that are not what was sent")
    if len(own) != len(originals):
        misses.append(f"{len(originals)} pictures sent, {len(own)} decoded of them")
    elif decoded[0] != [own[n] for n in places]:
        misses.append(f"what arrived decodes to something else ({len(decoded[0])} pictures of {len(places)}; {decoded[1][:80]})")
    if late > late_in_events:
        misses.append(f"{late - late_in_events} frames were late while all was well")
    if codes != (0, 0):
        misses.append(f"exit codes {codes}: {sender.last_line()} {receiver.last_line()}")
    summary = f"{len(places)} of {len(originals)} frames, the same to the bit decoded; {late} late"
    report.row(f"{len(originals) / FPS:.0f} s of live video in all", summary, misses)
