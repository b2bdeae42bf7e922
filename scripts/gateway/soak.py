"""A long run of two tunnel gateways, without root (`make soak` needs it, and has a VPN beside): links that go dark by turns and together, flows and connections that come and go. Nothing may grow.

    python3 scripts/gateway/soak.py --seconds 600

It prints what both processes hold, each half minute, and exits with 1 if memory, descriptors or threads have grown beyond their bounds.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "scripts", "soak")]
from impair import Link, Relay  # noqa: E402
from load import Load, held  # noqa: E402

# Seconds after which a flow is silent, and after which a session without a path is lost.
IDLE, LOST = 5, 3
# Bytes per second of a steady stream, of which there are two.
STEADY = 100_000


def free_port(kind=socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(prog="scripts/gateway/soak.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--program", default=os.path.join(target, "release", "punctual"), help="what to try (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=600)
    args = parser.parse_args()
    # By turns one is dark for 2 s; once a minute both are for 6, which ends the session.
    seconds = range(0, args.seconds, 10)
    both = [(at + 20, at + 26) for at in range(0, args.seconds, 60)]
    links = [Link(("127.0.0.1", 0), 0.02, 0.02, [(at, at + 2) for at in seconds] + both, 1), Link(("127.0.0.1", 0), 0.04, 0.02, [(at + 5, at + 7) for at in seconds] + both, 2)]
    udp, tcp, echo_udp, echo_tcp = free_port(), free_port(socket.SOCK_STREAM), free_port(), free_port(socket.SOCK_STREAM)
    relay, gateways = Relay(links), []
    # Bound before a gateway forwards to it.
    programs = Load(lambda _, make: make(), None, None, ("127.0.0.1", udp), ("127.0.0.1", tcp), ("127.0.0.1", echo_udp, echo_tcp), STEADY)
    with tempfile.TemporaryDirectory(prefix="punctual-soak-") as work:
        try:
            port, metrics = free_port(), free_port(socket.SOCK_STREAM)
            for link in links:
                link.target = ("127.0.0.1", port)

            def gateway(name, text):
                with open(os.path.join(work, f"{name}.toml"), "w", encoding="utf-8") as file:
                    file.write(text + f"\n[limits]\nidle = '{IDLE}s'\n")
                log = open(os.path.join(work, f"{name}.log"), "wb")
                gateways.append(subprocess.Popen([args.program, "tunnel", "--config", file.name], stdout=log, stderr=log))

            session = f"[session]\nidle-timeout = '{LOST}s'\n"
            forward = f"[[forward]]\nname = 'u'\nudp = '127.0.0.1:{echo_udp}'\n[[forward]]\nname = 't'\ntcp = '127.0.0.1:{echo_tcp}'\n"
            gateway("server", f"serve = ['127.0.0.1:{port}']\nidentity = '{work}/id.pem'\n{session}{forward}")
            fingerprint = None
            for _ in range(100):
                time.sleep(0.1)
                with open(os.path.join(work, "server.log"), encoding="utf-8") as said:
                    found = [line.split()[1] for line in said if line.startswith("fingerprint ")]
                if found:
                    fingerprint = found[0]
                    break
            paths = ", ".join(f"'127.0.0.{at + 2}=127.0.0.1:{link.port}'" for at, link in enumerate(links))
            listen = f"[[listen]]\nname = 'u'\nudp = '127.0.0.1:{udp}'\n[[listen]]\nname = 't'\ntcp = '127.0.0.1:{tcp}'\n"
            gateway("client", f"to = '127.0.0.1:{links[0].port}'\nmetrics = '127.0.0.1:{metrics}'\n{session}fingerprint = '{fingerprint}'\npath = [{paths}]\n{listen}")
            time.sleep(1)
            programs.start()
            relay.begin()
            begun, samples = time.time(), []
            while time.time() - begun < args.seconds:
                time.sleep(30)
                if any(gateway.poll() is not None for gateway in gateways):
                    print("a gateway has ended", file=sys.stderr)
                    sys.exit(1)
                now = [held(gateway) for gateway in gateways]
                text = urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics").read().decode()
                flows = [line.split()[1] for line in text.splitlines() if line.startswith("punctual_tunnel_flows{")]
                samples.append(now)
                words = "   ".join(f"{name} {at['mib']:5.1f} MiB {at['descriptors']:3} descriptors {at['threads']} threads" for name, at in zip(("server", "client"), now))
                print(f"{time.time() - begun:5.0f} s  {words}   flows {flows}   {programs.counted}", flush=True)
            with open(os.path.join(work, "client.log"), encoding="utf-8") as said:
                print(f"{sum('calling again' in line for line in said)} sessions were lost")
        finally:
            programs.close()
            for gateway in gateways:
                gateway.terminate()
                gateway.wait(10)
            relay.close()
    # The first third is for what is kept on purpose to fill.
    third = max(1, len(samples) // 3)
    for which, name in enumerate(("server", "client")):
        early, late = ({what: max(one[which][what] for one in part) for what in ("mib", "descriptors")} for part in (samples[:third], samples[-third:]))
        descriptors, early, late = late["descriptors"] - early["descriptors"], early["mib"], late["mib"]
        print(f"{name}: {early:.1f} MiB, then {late:.1f} MiB; {descriptors:+} descriptors")
        if late > 1.2 * early + 8 or descriptors > 40:
            sys.exit(1)


if __name__ == "__main__":
    main()
