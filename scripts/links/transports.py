"""Two hosts with two paths between them, and what carries frames over these.

A frame begins with its number and the time of its hand-over (CLOCK_MONOTONIC, which both namespaces share), so its delay is known where it comes out: no clock is compared.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

SIZE = 24_000
EVERY = 0.02
HEAD = struct.Struct("!IQ")
# How long after the last frame others are waited for.
DRAIN = 3
IPPROTO_MPTCP = 262
SO_RCVBUFFORCE = 33
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def set_namespace(descriptor):
    """Moves this thread there; os.setns is newer than many systems' Python."""
    if LIBC.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Hosts:
    """Two namespaces and the links between them, which go with this."""

    def __init__(self, program, spec, seed):
        self.program, self.spec, self.seed = program, spec, seed
        self.left, self.right = (f"links-{os.getpid()}-{end}" for end in ("left", "right"))
        self.link = None

    def __enter__(self):
        try:
            for name in (self.left, self.right):
                subprocess.run(["ip", "netns", "add", name], check=True)
                self.ip(name, "link", "set", "lo", "up")
            tun = [f"--tun={end},10.9.{path}.{host}/24" for path in (0, 1) for host, end in ((1, self.left), (2, self.right))]
            command = [self.program, "link", *tun, "--spec", self.spec, "--seed", str(self.seed), "--json"]
            self.link = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in tun:
                if not self.link.stderr.readline():
                    raise RuntimeError("the link did not start")
            # A full pipe would stop it.
            threading.Thread(target=self.link.stderr.read, daemon=True).start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.link and self.link.poll() is None:
            self.link.kill()
            self.link.wait()
        for name in (self.left, self.right):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    def stop_link(self):
        """Ends the links; what they did."""
        self.link.send_signal(signal.SIGTERM)
        return json.loads(self.link.stdout.read())

    def ip(self, name, *what):
        subprocess.run(["ip", "-n", name, *what], check=True)

    def enter(self, name, *command, **options):
        return subprocess.Popen(["ip", "netns", "exec", name, *command], **options)

    def socket(self, name, protocol, kind=socket.SOCK_STREAM):
        """A socket of one of the hosts: it stays there whoever uses it."""
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{name}", os.O_RDONLY)
        try:
            set_namespace(there)
            return socket.socket(socket.AF_INET, kind, protocol)
        finally:
            set_namespace(here)
            os.close(here)
            os.close(there)


def feed(write, seconds):
    """Hands frames over at their beat, or as soon as that is possible; how many."""
    begin, count = time.monotonic(), int(seconds / EVERY)
    for number in range(count):
        due = begin + number * EVERY
        time.sleep(max(0, due - time.monotonic()))
        # Counted from when it was due: a transport that does not take it makes it late.
        frame = HEAD.pack(number, int(due * 1e9)).ljust(SIZE, b"\7")
        write(struct.pack("!I", SIZE) + frame)
    return count


def take(read, frames):
    """Notes when frames come, until none do any more."""
    pending = b""
    while data := read(1 << 16):
        pending += data
        now = time.monotonic_ns()
        while len(pending) >= 4 and len(pending) >= 4 + (size := struct.unpack("!I", pending[:4])[0]):
            number, sent = HEAD.unpack_from(pending, 4)
            frames[number] = (sent, now)
            pending = pending[4 + size :]


def stream(hosts, seconds, protocol):
    server, client = hosts.socket(hosts.right, protocol), hosts.socket(hosts.left, protocol)
    # On all addresses, for MPTCP joins at the other one, too.
    server.bind(("", 5000))
    server.listen()
    client.settimeout(10)
    client.connect(("10.9.0.2", 5000))
    accepted, _ = server.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    frames, stop = {}, time.monotonic() + seconds + DRAIN
    client.settimeout(seconds + DRAIN)

    def hand_over(data):
        # Beyond its time a stream that is behind is not waited for.
        client.settimeout(max(0.01, stop - time.monotonic()))
        client.sendall(data)

    def read(size):
        accepted.settimeout(max(0.01, stop - time.monotonic()))
        try:
            return accepted.recv(size)
        except (TimeoutError, OSError):
            return b""

    reader = threading.Thread(target=take, args=(read, frames))
    reader.start()
    try:
        feed(hand_over, seconds)
        client.shutdown(socket.SHUT_WR)
    except (TimeoutError, OSError):
        pass
    reader.join()
    for one in (server, client, accepted):
        one.close()
    return frames, int(seconds / EVERY)


def tcp(hosts, seconds):
    return stream(hosts, seconds, socket.IPPROTO_TCP)


def mptcp(hosts, seconds):
    for name in (hosts.left, hosts.right):
        hosts.ip(name, "mptcp", "limits", "set", "subflow", "2", "add_addr_accepted", "2")
    hosts.ip(hosts.right, "mptcp", "endpoint", "add", "10.9.1.2", "dev", "link1", "signal")
    return stream(hosts, seconds, IPPROTO_MPTCP)


def punctual(hosts, seconds):
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    listen = ["--listen", "10.9.0.2:4433", "--listen", "10.9.1.2:4433"]
    receiver = hosts.enter(hosts.right, hosts.program, "recv", *listen, "--framed", **pipe)
    fingerprint = next(line.split()[1] for line in map(bytes.decode, receiver.stderr) if line.startswith("fingerprint"))
    threading.Thread(target=receiver.stderr.read, daemon=True).start()
    paths = ["--path", "10.9.0.1=10.9.0.2:4433", "--path", "10.9.1.1=10.9.1.2:4433"]
    command = [hosts.program, "send", "10.9.0.2:4433", "--fingerprint", fingerprint, "--framed", "--deadline", "200ms", "--unordered", "--quiet", *paths]
    sender = hosts.enter(hosts.left, *command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    # The others are connected, too, when they begin.
    time.sleep(1)
    return piped(hosts, seconds, receiver, sender)


def piped(hosts, seconds, receiver, sender):
    """Frames through a pair of programs: one writes them to its standard output as they come, the other reads them from its standard input."""
    frames = {}
    # Not `read`: that waits until it has all it was asked for.
    reader = threading.Thread(target=take, args=(receiver.stdout.read1, frames))
    reader.start()
    try:
        count = feed(lambda data: (sender.stdin.write(data), sender.stdin.flush()), seconds)
        sender.stdin.close()
        sender.wait(timeout=30)
        receiver.wait(timeout=10)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        count = int(seconds / EVERY)
    finally:
        end(sender, receiver)
    reader.join()
    return frames, count


def end(*processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def mpquic(hosts, seconds):
    program = os.path.join(os.path.dirname(hosts.program), "examples", "mpquic")
    with tempfile.TemporaryDirectory() as directory:
        certificate = os.path.join(directory, "certificate.der")
        pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        receiver = hosts.enter(hosts.right, program, "recv", certificate, "0.0.0.0:4433", **pipe)
        receiver.stderr.readline()
        sender = hosts.enter(hosts.left, program, "send", certificate, "10.9.0.2:4433", "10.9.1.2:4433", **pipe)
        if b"connected" not in sender.stderr.readline():
            end(sender, receiver)
            return {}, int(seconds / EVERY)
        return piped(hosts, seconds, receiver, sender)


class Datagrams:
    """A program that sends a frame in datagrams of UDP, at most `most` bytes each, and one that takes them: neither knows what is between them."""

    def __init__(self, hosts, most, into, out_of):
        self.most, self.into = most, into
        self.sender = hosts.socket(hosts.left, 0, socket.SOCK_DGRAM)
        self.receiver = hosts.socket(hosts.right, 0, socket.SOCK_DGRAM)
        self.receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        self.receiver.bind(out_of)
        self.frames, self.parts = {}, {}
        self.reader = threading.Thread(target=self.take)

    def send(self, frame):
        frame = frame[4:]
        for at in range(0, len(frame), self.most):
            # Each says of which frame it is, and how many bytes that has.
            self.sender.sendto(HEAD.pack(*HEAD.unpack_from(frame)) + frame[at : at + self.most], self.into)

    def take(self):
        while True:
            try:
                datagram = self.receiver.recv(65_536)
            except OSError:
                return
            now = time.monotonic_ns()
            if len(datagram) < HEAD.size:
                return
            number, sent = HEAD.unpack_from(datagram)
            self.parts[number] = self.parts.get(number, 0) + len(datagram) - HEAD.size
            if self.parts[number] == SIZE:
                self.frames[number] = (sent, now)

    def run(self, seconds):
        self.reader.start()
        count = feed(self.send, seconds)
        time.sleep(DRAIN)
        # Ends what waits for more.
        self.receiver.sendto(b"", self.receiver.getsockname())
        self.reader.join()
        self.sender.close()
        self.receiver.close()
        return self.frames, count


def gateway(hosts, seconds):
    """A pair of gateways, and programs that know nothing of them: a frame is a datagram."""
    pipe = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    serve = ["--serve", "10.9.0.2:4433", "--serve", "10.9.1.2:4433"]
    far = hosts.enter(hosts.right, hosts.program, "tunnel", *serve, "--forward", "frames=udp:127.0.0.1:5001", **pipe)
    fingerprint = next(line.split()[1] for line in map(bytes.decode, far.stderr) if line.startswith("fingerprint"))
    threading.Thread(target=far.stderr.read, daemon=True).start()
    paths = ["--path", "10.9.0.1=10.9.0.2:4433", "--path", "10.9.1.1=10.9.1.2:4433"]
    near = hosts.enter(hosts.left, hosts.program, "tunnel", "10.9.0.2:4433", "--fingerprint", fingerprint, "--listen", "udp:127.0.0.1:5000=frames,deadline=200ms", *paths, **pipe)
    threading.Thread(target=near.stderr.read, daemon=True).start()
    try:
        time.sleep(2)
        return Datagrams(hosts, SIZE, ("127.0.0.1", 5000), ("127.0.0.1", 5001)).run(seconds)
    finally:
        end(near, far)


def srt(hosts, seconds):
    """SRT's own programs over the first path, which is all they can use: its latency is what is left of 200 ms."""
    pipe = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    listener = hosts.enter(hosts.right, "srt-live-transmit", "-loglevel:fatal", "srt://10.9.0.2:9000?mode=listener&latency=135", "udp://127.0.0.1:5001", **pipe)
    time.sleep(0.5)
    caller = hosts.enter(hosts.left, "srt-live-transmit", "-loglevel:fatal", "udp://127.0.0.1:5000", "srt://10.9.0.2:9000?mode=caller&latency=135", **pipe)
    try:
        time.sleep(1.5)
        return Datagrams(hosts, 1316 - HEAD.size, ("127.0.0.1", 5000), ("127.0.0.1", 5001)).run(seconds)
    finally:
        end(caller, listener)


TRANSPORTS = {"punctual": punctual, "gateway": gateway, "mpquic": mpquic, "mptcp": mptcp, "tcp": tcp, "srt": srt}
