"""Two hosts, the links between them, and a VPN over these."""

import ctypes
import os
import re
import socket
import struct
import subprocess
import tempfile
import threading
import time

IPPROTO_MPTCP = 262
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
CLIENT, SERVER = "10.99.0.2", "10.99.0.1"


def set_namespace(descriptor):
    """Moves this thread there; os.setns is newer than many systems' Python."""
    if LIBC.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Hosts:
    """Two namespaces and two links between them, which go with this. Without `links`, these are veth pairs, as fast as the machine is."""

    def __init__(self, program, links=None, mtu=1500):
        self.program, self.links, self.mtu = program, links, mtu
        self.left, self.right = (f"vpn-{os.getpid()}-{end}" for end in ("left", "right"))
        self.processes, self.directory = [], tempfile.TemporaryDirectory(prefix="punctual-vpn-")

    def __enter__(self):
        try:
            for name in (self.left, self.right):
                self.run("ip", "netns", "add", name)
                self.run("ip", "-n", name, "link", "set", "lo", "up")
            self.bad_links() if self.links else self.veth()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in (self.left, self.right):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
        self.directory.cleanup()

    def run(self, *command):
        subprocess.run(command, check=True)

    def file(self, name):
        return os.path.join(self.directory.name, name)

    def start(self, name, *command):
        with open(self.file(name), "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def said(self, name, what, within=15):
        """What a process says behind some words."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            with open(self.file(name), encoding="utf-8", errors="replace") as log:
                if found := re.search(re.escape(what) + r"(.*)", log.read()):
                    return found[1].strip()
            time.sleep(0.05)
        with open(self.file(name), encoding="utf-8", errors="replace") as log:
            raise RuntimeError(f"{name} does not say {what!r}, but: {log.read()[-500:]}")

    def bad_links(self):
        with open(self.file("links.toml"), "w") as file:
            file.write("".join(f"[[path]]\n{link}\n" for link in self.links))
        tun = [f"--tun={end},10.98.{path}.{host}/24" for path in range(len(self.links)) for host, end in ((1, self.left), (2, self.right))]
        self.start("links", self.program, "link", *tun, "--spec", self.file("links.toml"))
        self.said("links", f"link{len(self.links) - 1} in {self.right}: ")
        self.devices = [f"link{path}" for path in range(len(self.links))]

    def veth(self):
        for path in range(2):
            self.link(path)
        self.devices = ["link0", "link1"]

    def link(self, path):
        self.run("ip", "link", "add", f"link{path}", "netns", self.left, "type", "veth", "peer", "name", f"link{path}", "netns", self.right)
        for host, name in ((1, self.left), (2, self.right)):
            self.run("ip", "-n", name, "addr", "add", f"10.98.{path}.{host}/24", "dev", f"link{path}")
            self.run("ip", "-n", name, "link", "set", f"link{path}", "mtu", str(self.mtu), "up")

    def vpn(self, paths=None, client=(), server=()):
        """Starts a VPN over the links, or over some of them, and waits until it carries."""
        identity = self.file("client.pem")
        # It says its fingerprint before it calls, in vain.
        first = self.start("identity", "ip", "netns", "exec", self.left, self.program, "vpn", "10.98.0.2:9", "--identity", identity, "--fingerprint", "ab" * 32)
        fingerprint = self.said("identity", "for the server to let us in: ")
        first.terminate()
        first.wait(5)
        here = ["ip", "netns", "exec", self.right, self.program, "vpn"]
        self.start("server", *here, "--identity", self.file("server.pem"), "--address", f"{SERVER}/24", "--client", fingerprint, *server)
        known = self.said("server", "\nfingerprint ")
        ways = [part for at in (paths or range(len(self.devices))) for part in ("--path", f"link{at}=10.98.{at}.2:4433")]
        there = ["ip", "netns", "exec", self.left, self.program, "vpn", "10.98.0.2:4433"]
        self.start("client", *there, "--identity", identity, "--fingerprint", known, *ways, *client)
        self.said("client", "connected")
        end = time.monotonic() + 10
        while time.monotonic() < end and CLIENT not in self.output(self.left, "ip", "-4", "addr", "show", "dev", "punctual0"):
            time.sleep(0.05)
        # Other paths, and the first round trips of each.
        time.sleep(1.5)

    def output(self, name, *command):
        done = subprocess.run(["ip", "netns", "exec", name, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return done.stdout

    def within(self, name, make):
        """What is made in a namespace, and stays there whoever uses it."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{name}", os.O_RDONLY)
        try:
            set_namespace(there)
            return make()
        finally:
            set_namespace(here)
            os.close(here)
            os.close(there)

    def counter(self, name, table, which):
        """A counter of the kernel's, from /proc/net."""
        lines = self.output(name, "cat", "/proc/net/netstat", "/proc/net/snmp").splitlines()
        for head, values in zip(lines, lines[1:]):
            if head.startswith(table) and which in head.split() and values.startswith(table):
                return int(values.split()[head.split().index(which)])
        return None

    def tcp(self, to, seconds, protocol=socket.IPPROTO_TCP, control="cubic"):
        """One flow of TCP from left to right: goodput, gaps, and what its sender had to do again."""

        def make(protocol):
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if protocol == socket.IPPROTO_TCP:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            return made

        server, client = (self.within(name, lambda: make(protocol)) for name in (self.right, self.left))
        server.bind(("", 5001))
        server.listen()
        client.settimeout(10)
        client.connect((to, 5001))
        accepted, _ = server.accept()
        # After what slow start does.
        warm, arrivals = 2.0, []

        def take():
            begin = time.monotonic()
            accepted.settimeout(seconds + 10)
            space = bytearray(1 << 20)
            try:
                while size := accepted.recv_into(space):
                    arrivals.append((time.monotonic() - begin, size))
            except ConnectionResetError:
                # So the sender ends.
                pass
            arrivals.append((time.monotonic() - begin, 0))

        reader = threading.Thread(target=take)
        reader.start()
        before = [self.counter(self.left, "TcpExt:", "TCPTimeouts"), self.counter(self.left, "Tcp:", "RetransSegs")]
        end, data = time.monotonic() + seconds, bytes(1 << 18)
        try:
            while time.monotonic() < end:
                client.send(data)
        except OSError:
            pass
        after = [self.counter(self.left, "TcpExt:", "TCPTimeouts"), self.counter(self.left, "Tcp:", "RetransSegs")]
        # What is still on its way is not waited for.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        try:
            accepted.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        reader.join()
        for one in (server, accepted):
            one.close()
        counted = [(at, size) for at, size in arrivals if warm <= at <= seconds]
        gaps = [later - sooner for (sooner, _), (later, _) in zip(counted, counted[1:])]
        return {
            "mbit_s": round(sum(size for _, size in counted) * 8e-6 / (seconds - warm), 2),
            "longest_gap_ms": round(1e3 * max(gaps, default=seconds), 1),
            "timeouts": after[0] - before[0],
            "resent": after[1] - before[1],
        }

    def ping(self, to, count=100, every=0.02):
        """Round trips of ICMP, ms: the least, the median, the 99th in a hundred; None for what is lost."""
        probe = self.within(self.left, lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
        ident, trips = os.getpid() & 0xFFFF, []
        for number in range(count):
            head = struct.pack("!BBHHH", 8, 0, 0, ident, number)
            data = head + bytes(48)
            total = sum(struct.unpack(f"!{len(data) // 2}H", data))
            total = (total & 0xFFFF) + (total >> 16)
            packet = head[:2] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + data[4:]
            began = time.monotonic()
            probe.sendto(packet, (to, 0))
            while (left := began + 1 - time.monotonic()) > 0:
                probe.settimeout(left)
                try:
                    came = probe.recv(2000)
                except TimeoutError:
                    break
                if came[20] == 0 and struct.unpack("!HH", came[24:28]) == (ident, number):
                    trips.append(1e3 * (time.monotonic() - began))
                    break
            time.sleep(max(0, began + every - time.monotonic()))
        probe.close()
        trips.sort()
        at = lambda share: round(trips[min(len(trips) - 1, int(len(trips) * share))], 2) if trips else None
        return {"least_ms": at(0), "median_ms": at(0.5), "p99_ms": at(0.99), "lost": count - len(trips)}
