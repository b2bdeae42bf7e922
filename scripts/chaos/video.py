"""H.264 byte streams: pictures in them, and whether two streams show the same."""

import re
import subprocess

START = re.compile(b"\x00\x00\x01")


def pictures(stream):
    """(offset, bytes, whether it is a key frame) of each picture, with the parameter sets before it."""
    starts = [match.start() for match in START.finditer(stream)]
    # A zero before the start code belongs to it.
    starts = [at - 1 if at and stream[at - 1] == 0 else at for at in starts]
    found, begin, key, has_slice = [], 0, False, False
    for at, end in zip(starts, starts[1:] + [len(stream)]):
        head = stream.find(b"\x01", at) + 1
        kind = stream[head] & 31
        is_slice = kind in (1, 5)
        # first_mb_in_slice is 0 if the first bit is 1.
        first = stream[head + 1] & 0x80 if is_slice and head + 1 < end else kind in (6, 7, 8, 9)
        if first and has_slice:
            found.append((begin, stream[begin:at], key))
            begin, key, has_slice = at, False, False
        has_slice |= is_slice
        key |= kind == 5
    if has_slice:
        found.append((begin, stream[begin:], key))
    return found


def hashes(path):
    """The hash of each picture as ffmpeg decodes it."""
    command = ["ffmpeg", "-v", "error", "-i", path, "-fps_mode", "passthrough", "-f", "framemd5", "-"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [line for line in run.stdout.splitlines() if line and not line.startswith("#")]
    return [line.split(",")[-1].strip() for line in lines], run.stderr.strip()


def match(sent, received):
    """The places in `sent` of what was received, which must be in order and the same to the byte; and how many are none of them."""
    places, strangers, at = [], 0, 0
    for picture in received:
        try:
            at = sent.index(picture, at)
        except ValueError:
            strangers += 1
            continue
        places.append(at)
        at += 1
    return places, strangers
