"""`punctual recv` and `punctual send` under way."""

import json
import os
import resource
import signal
import subprocess
import threading
import time

from network import PORT, SERVER

WORK = "/run/chaos"


class Program:
    """A process, and what it says on standard error, each line with the time at which it came."""

    started = []

    def __init__(self, command, stdin=subprocess.DEVNULL, there=False, name=None):
        if there:
            command = ["ip", "netns", "exec", "srv", *command]
        environment = {name: value for name, value in os.environ.items() if name not in ("RUST_LOG", "NOTIFY_SOCKET")}
        self.process = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
        )
        Program.started.append(self)
        self.lines, self.out, self.ended_at = [], b"", None
        self.log = open(f"{WORK}/{name}.log", "w") if name else None
        self.readers = [threading.Thread(target=read, daemon=True) for read in (self.read_errors, self.read_output)]
        for reader in self.readers:
            reader.start()

    def read_errors(self):
        for line in self.process.stderr:
            line = line.decode(errors="replace").rstrip("\n")
            self.lines.append((time.monotonic(), line))
            if self.log:
                print(f"{time.monotonic():.3f} {line}", file=self.log, flush=True)

    def read_output(self):
        self.out = self.process.stdout.read()

    def said(self):
        return "\n".join(line for _, line in list(self.lines))

    def after(self, what, within=10):
        """The rest of the first line that has `what`."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            for _, line in list(self.lines):
                if what in line:
                    return line.split(what, 1)[1]
            if self.process.poll() is not None and not self.readers[0].is_alive():
                break
            time.sleep(0.005)
        raise RuntimeError(f"no {what!r} in {self.said()!r}")

    def figures(self):
        """What `--stats-json` has said: (when, figures)."""
        return [(at, json.loads(line)) for at, line in list(self.lines) if line.startswith('{"')]

    def say(self, text):
        """Gives it something to send. It may have ended."""
        try:
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def hang_up(self):
        """Ends its input."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def signal(self, number):
        self.process.send_signal(number)

    def end(self, within):
        """The exit code, or `None` if it does not end in time; then it is killed."""
        try:
            code = self.process.wait(within)
            self.ended_at = time.monotonic()
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            code = None
        for reader in self.readers:
            reader.join(5)
        return code

    @classmethod
    def end_all(cls):
        """Kills what a part has left behind."""
        for program in cls.started:
            if program.process.poll() is None:
                program.process.kill()
                program.process.wait()
        cls.started = []

    def last_line(self):
        lines = [line for _, line in self.lines if line.startswith("punctual: ")]
        return lines[-1] if lines else ""

    def memory(self):
        """What it holds now, MB."""
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() / 1e6

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Punctual:
    """Starts the program."""

    def __init__(self, path):
        self.path = path

    def recv(self, *arguments, listen=f"{SERVER}:{PORT}", name=None):
        started = Program([self.path, "recv", "--listen", listen, *arguments], there=True, name=name)
        started.fingerprint = started.after("fingerprint ")
        started.address = listen
        return started

    def send(self, receiver, *arguments, stdin=subprocess.PIPE, name=None, fingerprint=None):
        command = [self.path, "send", receiver.address, "--fingerprint", receiver.fingerprint, *arguments]
        return Program(command, stdin=stdin, name=name)
