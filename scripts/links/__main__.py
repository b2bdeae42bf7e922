"""DMTP's comparison on real kernels: its two paths between two network namespaces, and over them Punctual, a pair of gateways, plain multipath QUIC, kernel
MPTCP, kernel TCP and SRT (where it is installed). Linux, as root.

    make links                                              build, and all of it: seven losses, up to six transports, about a minute each
    python3 scripts/links --loss 0,5 --seconds 10           a part, with a program that is there

Frames of 24 KB, 50 times a second, due after 200 ms, over two paths of 15 Mbit/s and 60 ms one way, of which the first loses (DMTP, Networking 2023, fig. 5 and 7 to 9). The paths are `punctual link --tun` with
the file of the experiment `dmtp`, the same seed for all transports: one run a cell. All namespaces, devices and files are made for it and go with it. It prints a table, writes results.json and report.html, and exits with 2
if it cannot be run here.
"""

import argparse
import html
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from transports import TRANSPORTS, Hosts

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXPERIMENT = os.path.join(ROOT, "crates", "punctual-eval", "experiments", "dmtp.toml")
# As the experiment has it, in the words of `--loss`; of the first path only.
RISING = "0s:0%,5s:0.5%,10s:1%,15s:2%,20s:3%,25s:4%,30s:5%,35s:6%,40s:8%,45s:10%"


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/links", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--program", default=os.path.join(target, "release", "punctual"), help="what to try (default: %(default)s)")
    parser.add_argument("--loss", default="0,0.5,1,2,5,10,rising", help="per cent lost on the first path, or `rising` (default: %(default)s)")
    parser.add_argument("--transports", help=f"which, of {', '.join(TRANSPORTS)} (default: all that are there)")
    parser.add_argument("--seconds", type=int, default=50, help="of frames (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the links")
    parser.add_argument("--out", default="punctual-links", metavar="DIR", help="where to put results.json and report.html (default: %(default)s)")
    return parser.parse_args()


def refuse(why):
    print(f"links: {why}", file=sys.stderr)
    sys.exit(2)


def check(args):
    if sys.platform != "linux":
        refuse("it needs Linux, for its network namespaces")
    if os.geteuid() != 0:
        refuse("it needs root, to make network namespaces: sudo make links")
    if not shutil.which("ip"):
        refuse("ip is not there: apt-get install iproute2")
    if not os.access(args.program, os.X_OK):
        refuse(f"{args.program} is not there: make links builds it")
    if args.transports is None:
        args.transports = ",".join(name for name in TRANSPORTS if name != "srt" or shutil.which("srt-live-transmit"))
    unknown = set(args.transports.split(",")) - set(TRANSPORTS)
    if unknown:
        refuse(f"there are {', '.join(TRANSPORTS)}, and no {', '.join(sorted(unknown))}")


def paths(loss, directory):
    """A file with the two paths, of which the first loses."""
    share = RISING if loss == "rising" else f"{loss}%"
    steps = [step.split(":") for step in share.split(",")]
    value = json.dumps(steps) if len(steps) > 1 else json.dumps(f"{loss} %")
    name = os.path.join(directory, "paths.toml")
    with open(EXPERIMENT) as experiment:
        # The tables of the paths; what comes behind is of no concern to links.
        tables = experiment.read().split("[[path]]")[1:3]
    first, second = tables[0], tables[1].split("[[")[0]
    with open(name, "w") as file:
        file.write("[[path]]" + first.replace("loss = 0\nback", f"loss = {value}\nback") + "[[path]]" + second)
    return name


def measure(frames, handed_over, seconds):
    """What became of the frames: delays in ms, of those that came."""
    delays = sorted((at - sent) / 1e6 for sent, at in frames.values())
    on_time = sum(1 for delay in delays if delay <= 200)
    at = lambda share: round(delays[min(len(delays) - 1, int(len(delays) * share))], 1) if delays else None
    return {"frames": handed_over, "delivered": len(delays), "on_time": round(on_time / max(handed_over, 1), 4), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1), "seconds": seconds}


def run(args, loss, name, directory):
    with Hosts(args.program, paths(loss, directory), args.seed) as hosts:
        frames, handed_over = TRANSPORTS[name](hosts, args.seconds)
        link = hosts.stop_link()
    result = {"transport": name, "loss": loss, **measure(frames, handed_over, args.seconds)}
    carried = [path["there"]["bytes"] for path in link["paths"]]
    return {**result, "bytes": carried, "link_late_p99_ms": (link["late"] or {}).get("p99_ms")}


HEAD = ["transport", "loss", "frames", "on time", "p50 ms", "p99 ms", "MB on each path", "link late by itself, p99 ms"]


def row(result):
    number = lambda value: "" if value is None else f"{value:.0f}"
    carried = " + ".join(f"{bytes / 1e6:.1f}" for bytes in result["bytes"])
    late = result["link_late_p99_ms"]
    loss = result["loss"] if result["loss"] == "rising" else f"{result['loss']} %"
    return [result["transport"], loss, str(result["frames"]), f"{100 * result['on_time']:.1f} %", number(result["p50_ms"]), number(result["p99_ms"]), carried, "" if late is None else f"{late:.2f}"]


def report(results, args):
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "results.json"), "w") as file:
        json.dump({"seconds": args.seconds, "seed": args.seed, "kernel": os.uname().release, "runs": results}, file, indent=1)
    cells = lambda tag, row: "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
    rows = "\n".join(f"<tr>{cells('td', row(result))}</tr>" for result in results)
    page = f"""<!doctype html><meta charset="utf-8"><title>DMTP's comparison on kernel links</title>
<style>body{{font:16px sans-serif;max-width:60em;margin:2em auto}}td,th{{padding:.2em .8em;text-align:right;border-bottom:1px solid #ccc}}td:first-child,th:first-child{{text-align:left}}</style>
<h1>DMTP's comparison on kernel links</h1>
<p>Frames of 24 KB, 50 times a second, due after 200 ms, over two paths of 15 Mbit/s and 60 ms one way between two network namespaces, of which the first loses. {args.seconds} s, seed {args.seed}, one run a cell, Linux {html.escape(os.uname().release)}.</p>
<table><tr>{cells('th', HEAD)}</tr>
{rows}
</table>"""
    with open(os.path.join(args.out, "report.html"), "w") as file:
        file.write(page)


def main():
    args = arguments()
    check(args)
    results = []
    print("  ".join(HEAD), flush=True)
    with tempfile.TemporaryDirectory() as directory:
        for loss in args.loss.split(","):
            for name in args.transports.split(","):
                results.append(run(args, loss, name, directory))
                print("  ".join(row(results[-1])), flush=True)
                report(results, args)
    print(f"the report: {os.path.join(args.out, 'report.html')}")


if __name__ == "__main__":
    main()
