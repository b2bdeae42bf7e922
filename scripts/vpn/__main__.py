"""What a VPN makes of two links: one TCP flow over both, ping, a link's death, and how fast it can be. Linux, as root.

    make vpn                                    build, and all of it: about two minutes
    python3 scripts/vpn --only death            a part, with a program that is there

Between two network namespaces are two links of 20 Mbit/s, 10 and 15 ms one way (`punctual link --tun`); beside the VPN over both, the kernel's TCP over the first alone, and MPTCP over
both. All namespaces, devices and files are made for it and go with it. It prints a table, writes punctual-vpn.json, and exits with 1 if the VPN does not do what it must, with 2 if it cannot be run here.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hosts import IPPROTO_MPTCP, SERVER, Hosts  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RATE = 20
LINKS = [f'rate = "{RATE} Mbit/s"\ndelay = "10ms"', f'rate = "{RATE} Mbit/s"\ndelay = "15ms"']
LOSSY = [LINKS[0], LINKS[1] + '\nloss = "1 %"']
# What must be: of two links of 20 Mbit/s, so much; so much more than the better path's round trip; on this machine, so much at all.
MUST_MBIT, MUST_PING_MS, MUST_FAST_MBIT = 36, 1.0, 1000


def refuse(why):
    print(f"vpn: {why}", file=sys.stderr)
    sys.exit(2)


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/vpn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--program", default=os.path.join(target, "release", "punctual"), help="what to try (default: %(default)s)")
    parser.add_argument("--only", default="tcp,loss,ping,death,fast", help="which parts (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=10, help="of each flow (default: %(default)s)")
    parser.add_argument("--control", default="cubic", help="congestion control of TCP (default: %(default)s)")
    parser.add_argument("--json", default="punctual-vpn.json", metavar="FILE", help="where to write all figures (default: %(default)s)")
    args = parser.parse_args()
    if sys.platform != "linux":
        refuse("it needs Linux, for its network namespaces")
    if os.geteuid() != 0:
        refuse("it needs root, to make network namespaces: sudo make vpn")
    if not shutil.which("ip"):
        refuse("ip is not there: apt-get install iproute2")
    if not os.access(args.program, os.X_OK):
        refuse(f"{args.program} is not there: make vpn builds it")
    return args


def mptcp(hosts):
    """Has the kernel use both links."""
    for name in (hosts.left, hosts.right):
        subprocess.run(["ip", "-n", name, "mptcp", "limits", "set", "subflow", "4", "add_addr_accepted", "4"], check=True)
    subprocess.run(["ip", "-n", hosts.left, "mptcp", "endpoint", "add", "10.98.1.1", "dev", "link1", "subflow"], check=True)
    subprocess.run(["ip", "-n", hosts.right, "mptcp", "endpoint", "add", "10.98.1.2", "dev", "link1", "signal"], check=True)


def beside(args, links, seconds):
    """The same flow as others carry it."""
    with Hosts(args.program, links) as hosts:
        yield "TCP over the first link", hosts.tcp("10.98.0.2", seconds, control=args.control)
    with Hosts(args.program, links) as hosts:
        try:
            mptcp(hosts)
            yield "MPTCP over both", hosts.tcp("10.98.0.2", seconds, protocol=IPPROTO_MPTCP)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"vpn: no MPTCP here: {error}", file=sys.stderr)


def flow(args, part, links, must=None, seconds=None):
    seconds = seconds or args.seconds
    with Hosts(args.program, links) as hosts:
        hosts.vpn()
        figures = hosts.tcp(SERVER, seconds, control=args.control)
    yield {"part": part, "what": "TCP in the VPN over both", **figures, "of_sum": round(figures["mbit_s"] / (2 * RATE), 3), "met": must and must(figures)}
    for what, figures in beside(args, links, seconds):
        yield {"part": part, "what": what, **figures}


def tcp(args):
    return flow(args, "tcp", LINKS, lambda figures: figures["mbit_s"] >= MUST_MBIT)


def loss(args):
    return flow(args, "loss", LOSSY)


def death(args):
    # Counted from the first packet, which is the VPN's or the flow's.
    links = [LINKS[0] + '\ndies = [["6s", "60s"]]', LINKS[1]]
    return flow(args, "death", links, lambda figures: figures["timeouts"] == 0, seconds=12)


def ping(args):
    with Hosts(args.program, LINKS) as hosts:
        better = hosts.ping("10.98.0.2")
        yield {"part": "ping", "what": "the better link alone", **better}
        hosts.vpn()
        idle = hosts.ping(SERVER)
        met = idle["median_ms"] is not None and idle["median_ms"] - better["median_ms"] <= MUST_PING_MS
        yield {"part": "ping", "what": "in the VPN", **idle, "met": met}
        flow = threading.Thread(target=hosts.tcp, args=(SERVER, 6), kwargs={"control": args.control})
        flow.start()
        yield {"part": "ping", "what": "in the VPN, beside a TCP flow", **hosts.ping(SERVER, 200)}
        flow.join()
    with Hosts(args.program, LINKS) as hosts:
        flow = threading.Thread(target=hosts.tcp, args=("10.98.0.2", 6), kwargs={"control": args.control})
        flow.start()
        yield {"part": "ping", "what": "the better link, beside a TCP flow", **hosts.ping("10.98.0.2", 200)}
        flow.join()


def fast(args):
    with Hosts(args.program) as hosts:
        yield {"part": "fast", "what": "TCP over veth", **hosts.tcp("10.98.0.2", 5, control=args.control)}
        hosts.vpn([0])
        figures = hosts.tcp(SERVER, 8, control=args.control)
        yield {"part": "fast", "what": "TCP in the VPN over veth", **figures, "met": figures["mbit_s"] >= MUST_FAST_MBIT}


COLUMNS = ["mbit_s", "of_sum", "longest_gap_ms", "timeouts", "resent", "median_ms", "p99_ms", "lost"]


def main():
    args, results = arguments(), []
    parts = {"tcp": tcp, "loss": loss, "ping": ping, "death": death, "fast": fast}
    print(" ".join([f"{'part':6}{'what':36}"] + [f"{column:>14}" for column in COLUMNS]))
    for part in args.only.split(","):
        if part not in parts:
            refuse(f"there is no part {part}, but {', '.join(parts)}")
        for result in parts[part](args):
            results.append(result)
            shown = [f"{'' if result.get(column) is None else result[column]:>14}" for column in COLUMNS]
            print(" ".join([f"{result['part']:6}{result['what']:36}"] + shown) + {True: "  met", False: "  NOT MET"}.get(result.get("met"), ""), flush=True)
    with open(args.json, "w") as file:
        json.dump({"seconds": args.seconds, "control": args.control, "kernel": os.uname().release, "runs": results}, file, indent=1)
    sys.exit(any(result.get("met") is False for result in results))


if __name__ == "__main__":
    main()
