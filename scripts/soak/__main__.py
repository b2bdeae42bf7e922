"""A long run of `punctual vpn` and `punctual tunnel` beside each other, over two links that come and go. Nothing may grow. Linux, as root.

    make soak MINUTES=60                        build, and run it for an hour
    python3 scripts/soak --minutes 5            with a program that is there

Between two network namespaces are two veth links of 60 Mbit/s each (TBF). By turns one is down for 3 s in every 15; every 5 minutes (--dark-every) both are for 40 s, which ends all sessions; every
7 minutes the second is deleted and made anew. Through the VPN and through the tunnel go steady streams that are sent back, 50 Mbit/s in all (--mbit), and besides some five flows and four
connections each second that come and go. Each 10 s it is looked what the four processes hold: memory, descriptors, threads, and flows by their metrics pages.

It writes punctual-soak.json, and exits with 0 if nothing has grown, with 1 if something has or a process has ended, with 2 if it cannot be run here. All namespaces, devices and files are
made for it and go with it.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "scripts", "vpn")]
from hosts import SERVER, Hosts  # noqa: E402
from load import Load, held  # noqa: E402

EVERY = 10
# Seconds that are for what is kept on purpose to fill; of a short run, a third.
WARM_UP = 300
# What may be made of the slope of a noisy gauge over the rest of the run: memory may seem to grow by so much, MiB, or by that share of what it is; descriptors by so many.
MAY_GROW_MIB, MAY_GROW_SHARE, MAY_GROW_DESCRIPTORS = 3, 0.1, 15
# Seconds for which both links are dark: longer than the idle timeout of 30 s, and so the end of a session.
DARK = 40
# A link's rate. TBF's bucket must hold what a device takes at once, 64 KB.
SHAPED = "tbf rate 60mbit burst 128k latency 50ms"


def refuse(why):
    print(f"soak: {why}", file=sys.stderr)
    sys.exit(2)


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--program", default=os.path.join(target, "release", "punctual"), help="what to try (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=60, help="how long (default: %(default)s)")
    parser.add_argument("--mbit", type=float, default=50, help="of all steady streams together, both ways, Mbit/s (default: %(default)s)")
    parser.add_argument("--dark-every", type=float, default=300, metavar="SECONDS", help="how often both links are dark (default: %(default)s)")
    parser.add_argument("--json", default="punctual-soak.json", metavar="FILE", help="where to write all figures (default: %(default)s)")
    args = parser.parse_args()
    if sys.platform != "linux":
        refuse("it needs Linux, for its network namespaces")
    if os.geteuid() != 0:
        refuse("it needs root, to make network namespaces: sudo make soak")
    for needed in ("ip", "tc"):
        if not shutil.which(needed):
            refuse(f"{needed} is not there: apt-get install iproute2")
    if not os.access(args.program, os.X_OK):
        refuse(f"{args.program} is not there: make soak builds it")
    return args


class Links(threading.Thread):
    """Has the two links come and go until it is told to stop."""

    def __init__(self, hosts, dark_every):
        super().__init__(daemon=True)
        self.hosts, self.dark_every, self.stop, self.outages, self.remade = hosts, dark_every, threading.Event(), 0, 0

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def shape(self, path):
        for name in (self.hosts.left, self.hosts.right):
            subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", f"link{path}", "root", *SHAPED.split()], check=True)

    def dark(self, paths, seconds):
        for path in paths:
            self.ip("-n", self.hosts.left, "link", "set", f"link{path}", "down")
        self.stop.wait(seconds)
        for path in paths:
            self.ip("-n", self.hosts.left, "link", "set", f"link{path}", "up")

    def remake(self, path):
        self.ip("-n", self.hosts.left, "link", "del", f"link{path}")
        self.stop.wait(2)
        self.hosts.link(path)
        self.shape(path)
        self.remade += 1

    def run(self):
        begun, turn = time.monotonic(), 0
        due = {"both": begun + self.dark_every / 2, "remake": begun + 200}
        while not self.stop.wait(12):
            if time.monotonic() > due["both"]:
                due["both"] += self.dark_every
                self.dark([0, 1], DARK)
                self.outages += 1
            elif time.monotonic() > due["remake"]:
                due["remake"] += 420
                self.remake(1)
            else:
                self.dark([turn % 2], 3)
                turn += 1


def flows(hosts, name, port):
    """What a metrics page says of flows; `None` if it does not answer."""
    try:
        with hosts.within(name, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as asked:
            asked.settimeout(5)
            asked.connect(("127.0.0.1", port))
            asked.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            page = b""
            while part := asked.recv(65536):
                page += part
    except OSError:
        return None
    lines = [line.rsplit(" ", 1) for line in page.decode().splitlines() if "_flows{" in line and not line.startswith("#")]
    return sum(int(value) for _, value in lines)


def slope(samples, what):
    """By how much it grows in an hour, by least squares."""
    points = [(at["seconds"] / 3600, at[what]) for at in samples if at[what] is not None]
    if len(points) < 2:
        return 0.0
    line = statistics.linear_regression(*zip(*points))
    return line.slope


def judge(name, samples, hours):
    """What is to be said of a process, by its samples after the warm-up."""
    middle = statistics.median(at["mib"] for at in samples)
    figures = {what: round(slope(samples, what), 3) for what in ("mib", "descriptors", "threads", "flows")}
    grew = {what: figures[what] * hours for what in figures}
    bad = []
    if grew["mib"] > max(MAY_GROW_MIB, MAY_GROW_SHARE * middle):
        bad.append("memory grows")
    if grew["descriptors"] > MAY_GROW_DESCRIPTORS:
        bad.append("descriptors grow")
    if samples[-1]["threads"] > samples[0]["threads"]:
        bad.append("threads grow")
    most = {what: max((at[what] for at in samples if at[what] is not None), default=None) for what in ("mib", "descriptors", "threads", "flows")}
    return {"process": name, "per_hour": figures, "median_mib": middle, "most": most, "bad": bad}


def tunnel(hosts):
    """A pair of gateways over the same links."""
    there = ["ip", "netns", "exec", hosts.right, hosts.program, "tunnel", "--serve", "4434", "--identity", hosts.file("tunnel.pem"), "--metrics", "127.0.0.1:9102"]
    server = hosts.start("tunnel-server", *there, "--forward", "u=udp:127.0.0.1:6000", "--forward", "t=tcp:127.0.0.1:6001")
    known = hosts.said("tunnel-server", "fingerprint ")
    ways = [part for at in range(2) for part in ("--path", f"link{at}=10.98.{at}.2:4434")]
    here = ["ip", "netns", "exec", hosts.left, hosts.program, "tunnel", "10.98.0.2:4434", "--fingerprint", known, "--metrics", "127.0.0.1:9102", *ways]
    client = hosts.start("tunnel-client", *here, "--listen", "udp:127.0.0.1:6000=u", "--listen", "tcp:127.0.0.1:6001=t")
    hosts.said("tunnel-client", "connected")
    return server, client


def run(args):
    with Hosts(args.program) as hosts:
        links = Links(hosts, args.dark_every)
        for path in range(2):
            links.shape(path)
        hosts.vpn(client=["--metrics", "127.0.0.1:9101"], server=["--metrics", "127.0.0.1:9101"])
        vpn_server, vpn_client = hosts.processes[-2:]
        tunnel_server, tunnel_client = tunnel(hosts)
        watched = {
            "vpn-server": (vpn_server, hosts.right, 9101),
            "vpn-client": (vpn_client, hosts.left, 9101),
            "tunnel-server": (tunnel_server, hosts.right, 9102),
            "tunnel-client": (tunnel_client, hosts.left, 9102),
        }
        # Four streams, each of which is sent back.
        rate = args.mbit * 1e6 / 8 / 8
        loads = {
            "vpn": Load(hosts.within, hosts.left, hosts.right, (SERVER, 5000), (SERVER, 5001), ("0.0.0.0", 5000, 5001), rate),
            "tunnel": Load(hosts.within, hosts.left, hosts.right, ("127.0.0.1", 6000), ("127.0.0.1", 6001), ("127.0.0.1", 6000, 6001), rate),
        }
        for one in (*loads.values(), links):
            one.start()
        begun, samples, ended = time.monotonic(), {name: [] for name in watched}, []
        try:
            while time.monotonic() - begun < args.minutes * 60 and not ended:
                time.sleep(EVERY)
                seconds = round(time.monotonic() - begun, 1)
                ended = [name for name, (process, _, _) in watched.items() if process.poll() is not None]
                for name, (process, where, port) in watched.items():
                    if name not in ended:
                        samples[name].append({"seconds": seconds, **held(process), "flows": flows(hosts, where, port)})
                last = {name: of[-1] for name, of in samples.items() if of}
                words = "  ".join(f"{name} {at['mib']:5.1f} MiB {at['descriptors']:3} fd {at['flows']} flows" for name, at in last.items())
                print(f"{seconds:6.0f} s  {words}", flush=True)
        finally:
            links.stop.set()
            links.join()
            for load in loads.values():
                load.close()
        warm = min(WARM_UP, args.minutes * 20)
        later = {name: [at for at in of if at["seconds"] > warm] for name, of in samples.items()}
        hours = (samples["vpn-server"][-1]["seconds"] - warm) / 3600
        verdicts = [judge(name, of, hours) for name, of in later.items() if of]
        for name in ended:
            verdicts.append({"process": name, "bad": ["it has ended: " + tail(hosts.file(logs(name)))]})
        done = {name: load.counted for name, load in loads.items()}
        return {"minutes": args.minutes, "mbit": args.mbit, "outages": links.outages, "remade": links.remade, "carried": done, "verdicts": verdicts, "samples": samples}


def logs(name):
    return {"vpn-server": "server", "vpn-client": "client"}.get(name, name)


def tail(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        return log.read()[-500:]


def main():
    args = arguments()
    report = run(args)
    with open(args.json, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    for name, counted in report["carried"].items():
        print(f"{name}: {counted}")
    print(f"{report['outages']} times both links were dark, {report['remade']} times one was made anew")
    for verdict in report["verdicts"]:
        print(f"{verdict['process']:14} per hour {verdict.get('per_hour')}  most {verdict.get('most')}  {'; '.join(verdict['bad']) or 'level'}")
    sys.exit(any(verdict["bad"] for verdict in report["verdicts"]))


if __name__ == "__main__":
    main()
