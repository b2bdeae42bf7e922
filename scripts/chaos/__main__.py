"""The chaos run: the real program on two hosts and two links that are unplugged in every way. Linux, as root, with ffmpeg.

    make chaos                                          build, and all of it: about three minutes
    python3 scripts/chaos --only unplug --seconds 75    a part, with a program that is there

All that it makes is in namespaces of its own (network, mounts, processes), which the system takes down with it, however it ends. It prints a table,
and exits with 1 if something in it does not hold, with 2 if it cannot be run here.
"""

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INSIDE = "PUNCTUAL_CHAOS_INSIDE"
PARTS = ["unplug", "gone", "ten", "thousand", "killed"]


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--program", default=os.path.join(target, "release", "punctual"), help="what to try (default: %(default)s)")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--seconds", type=int, default=75, help="of live video; 75 are enough for all there is to unplug")
    parser.add_argument("--json", metavar="FILE", help="write the result there, as one JSON object")
    parser.add_argument("--logs", metavar="DIR", help="keep there what was sent and received, and what the programs said")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress")
    return parser.parse_args()


def refuse(why):
    print(f"chaos: {why}", file=sys.stderr)
    sys.exit(2)


def check(args):
    if sys.platform != "linux":
        refuse("it needs Linux, for its network namespaces")
    if os.geteuid() != 0:
        refuse("it needs root, to make network namespaces: sudo make chaos")
    parts = args.only or PARTS
    needed = [("unshare", "util-linux"), ("ip", "iproute2"), ("tc", "iproute2"), ("mount", "mount")]
    needed += [("ffmpeg", "ffmpeg")] if "unplug" in parts else []
    for command, package in needed:
        if not shutil.which(command):
            refuse(f"{command} is not there: apt-get install {package}")
    if not os.access(args.program, os.X_OK):
        refuse(f"{args.program} is not there: make chaos builds it")
    probe = ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"]
    tried = subprocess.run(probe, capture_output=True, text=True)
    if tried.returncode:
        refuse(f"this system lets us make no network namespaces or veth links: {tried.stderr.strip()}")


def outside():
    """Runs this again in namespaces of its own. They end when their first process does, and that ends with us."""
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", sys.executable, *sys.argv]

    def with_parent():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)

    child = subprocess.Popen(command, env={**os.environ, INSIDE: "1"}, preexec_fn=with_parent)

    ended_by = []

    def stop(number, _):
        ended_by.append(number)
        child.kill()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    code = child.wait()
    if ended_by:
        print(f"\nchaos: ended by {signal.Signals(ended_by[0]).name}; its namespaces are gone", file=sys.stderr)
        return 128 + ended_by[0]
    return code


def inside(args):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import gone
    import killed
    import many
    import network
    import unplugging
    from programs import WORK, Program, Punctual
    from report import Report

    links = network.two_hosts()
    report, punctual, parts = Report(args.quiet), Punctual(os.path.abspath(args.program)), args.only or PARTS
    todo = [
        ("unplug", lambda: unplugging.run(report, punctual, links, args.seconds)),
        ("gone", lambda: gone.run(report, punctual, links)),
        ("ten", lambda: many.ten(report, punctual)),
        ("thousand", lambda: many.thousand(report, punctual)),
        ("killed", lambda: killed.run(report, punctual)),
    ]
    for name, part in todo:
        if name not in parts:
            continue
        try:
            part()
        except Exception as error:
            report.row(name, "could not be run", [f"{type(error).__name__}: {error}"])
        finally:
            Program.end_all()
    report.print()
    if args.json:
        with open(args.json, "w") as file:
            print(report.json(sys.argv[1:]), file=file)
    if args.logs:
        os.makedirs(args.logs, exist_ok=True)
        for name in os.listdir(WORK):
            if os.path.isfile(f"{WORK}/{name}"):
                shutil.copy(f"{WORK}/{name}", args.logs)
    return 1 if report.failed() or not report.rows else 0


def main():
    args = arguments()
    if os.environ.get(INSIDE):
        return inside(args)
    check(args)
    return outside()


sys.exit(main())
