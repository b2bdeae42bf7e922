"""A long run of two gateways: links that go dark by turns and together, flows and connections that come and go. Nothing may grow.

    python3 scripts/gateway/soak.py --seconds 600

It prints what both processes hold, each half minute, and exits with 1 if memory, descriptors or threads have grown beyond their bounds.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from impair import Link, Relay  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Seconds after which a flow is silent, and after which a session without a path is lost.
IDLE, LOST = 5, 3


def free_port(kind=socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def holds(process):
    """Resident memory in MiB, descriptors, threads."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        said = dict(line.split(":", 1) for line in status if ":" in line)
    return int(said["VmRSS"].split()[0]) / 1024, len(os.listdir(f"/proc/{process.pid}/fd")), int(said["Threads"])


class Programs:
    """What speaks through the gateways until it is told to stop."""

    def __init__(self, udp, tcp, echo_udp, echo_tcp):
        self.udp, self.tcp, self.stop = udp, tcp, threading.Event()
        self.asked = self.answered = self.connections = self.whole = 0
        # Bound before a gateway forwards to it.
        self.echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.echo.bind(("127.0.0.1", echo_udp))
        self.echo.settimeout(0.5)
        self.listener = socket.create_server(("127.0.0.1", echo_tcp))
        self.listener.settimeout(0.5)
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.echo_udp, self.echo_tcp, self.ask, self.connect)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def echo_udp(self):
        while not self.stop.is_set():
            try:
                data, peer = self.echo.recvfrom(65536)
                self.echo.sendto(data, peer)
            except OSError:
                pass

    def echo_tcp(self):
        while not self.stop.is_set():
            try:
                stream, _ = self.listener.accept()
            except OSError:
                continue
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def serve(self, stream):
        with stream:
            try:
                stream.settimeout(30)
                while data := stream.recv(65536):
                    stream.sendall(data)
            except OSError:
                pass

    def ask(self):
        """Ten programs, each of which says twenty things and goes: two flows begin each second."""
        draw = random.Random(1)
        while not self.stop.is_set():
            sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(10)]
            for one in sockets:
                one.setblocking(False)
            for _ in range(20):
                for one in sockets:
                    one.sendto(bytes(draw.randrange(0, 1400)), ("127.0.0.1", self.udp))
                    self.asked += 1
                time.sleep(0.25)
                for one in sockets:
                    try:
                        while True:
                            one.recv(65536)
                            self.answered += 1
                    except OSError:
                        pass
            for one in sockets:
                one.close()

    def connect(self):
        while not self.stop.is_set():
            data, came = os.urandom(200_000), b""
            self.connections += 1
            try:
                with socket.create_connection(("127.0.0.1", self.tcp), timeout=20) as stream:
                    writer = threading.Thread(target=lambda: self.write(stream, data), daemon=True)
                    writer.start()
                    while part := stream.recv(65536):
                        came += part
                    writer.join()
            except OSError:
                pass
            self.whole += came == data
            time.sleep(0.5)

    @staticmethod
    def write(stream, data):
        try:
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass


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
    relay, programs, gateways = Relay(links), Programs(udp, tcp, echo_udp, echo_tcp), []
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
                now = [holds(gateway) for gateway in gateways]
                text = urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics").read().decode()
                flows = [line.split()[1] for line in text.splitlines() if line.startswith("punctual_tunnel_flows{")]
                samples.append(now)
                words = "   ".join(f"{name} {mib:5.1f} MiB {fds:3} descriptors {threads} threads" for name, (mib, fds, threads) in zip(("server", "client"), now))
                print(f"{time.time() - begun:5.0f} s  {words}   flows {flows}   {programs.answered}/{programs.asked} answered, {programs.whole}/{programs.connections} connections whole", flush=True)
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
        early, late = max(one[which][0] for one in samples[:third]), max(one[which][0] for one in samples[-third:])
        descriptors = max(one[which][1] for one in samples[-third:]) - max(one[which][1] for one in samples[:third])
        print(f"{name}: {early:.1f} MiB, then {late:.1f} MiB; {descriptors:+} descriptors")
        if late > 1.2 * early + 8 or descriptors > 40:
            sys.exit(1)


if __name__ == "__main__":
    main()
