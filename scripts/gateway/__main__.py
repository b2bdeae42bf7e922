"""Programs that know nothing of Punctual, with and without a gateway between them: ffmpeg and SRT over two bad links. Needs ffmpeg, no privilege.

    make gateway                                   build, and all of it: about three minutes
    python3 scripts/gateway --only mpegts          a part, with a program that is there

A video of which each frame is known is sent in real time over links that lose packets and go dark. What is counted is the frames that come out as they
went in, picture by picture. All is on loopback. It prints a table, and exits with 1 if the gateway does not do what it must, with 2 if it cannot be run here.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from impair import Link, Relay  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Each link loses its share and is dark now and then: seconds after the video begins. There is always one that is not.
LINKS = [dict(delay=0.030, loss=0.03, dark=[(3, 5), (9, 11)]), dict(delay=0.050, loss=0.02, dark=[(6, 8), (12, 13.5)])]
FPS, LATENCY_MS = 25, 400
FFMPEG = ["ffmpeg", "-hide_banner", "-nostdin", "-loglevel", "error", "-y"]
# The share of frames that must come out of the gateway, and how far it must be ahead of going without.
MUST = 0.97


def refuse(why):
    print(f"gateway: {why}", file=sys.stderr)
    sys.exit(2)


def free_port(kind=socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Processes:
    """Processes that do not outlive the run."""

    def __init__(self, logs):
        self.logs, self.all = logs, []

    def start(self, name, command, **more):
        log = open(os.path.join(self.logs, f"{name}.log"), "wb")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **more)
        self.all.append(process)
        return process

    def close(self):
        for process in self.all:
            if process.poll() is None:
                process.terminate()
        for process in self.all:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def make_video(path, seconds):
    """A moving picture with sound, as a live encoder makes it: a key frame each second, no B frames."""
    picture = f"testsrc2=size=640x360:rate={FPS}:duration={seconds}"
    sound = f"sine=frequency=440:duration={seconds}"
    coding = ["-c:v", "libx264", "-preset", "veryfast", "-tune", "zerolatency", "-g", str(FPS), "-b:v", "1500k", "-maxrate", "1500k", "-bufsize", "300k", "-pix_fmt", "yuv420p"]
    subprocess.run([*FFMPEG, "-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", sound, *coding, "-c:a", "aac", "-f", "mpegts", path], check=True)


def frames(path):
    """What each frame looks like, decoded."""
    command = [*FFMPEG, "-loglevel", "quiet", "-i", path, "-map", "0:v:0", "-fps_mode", "passthrough", "-f", "framemd5", "-"]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
    return [line.split(",")[-1].strip() for line in text.splitlines() if line and not line.startswith("#")]


def share(source, came):
    """The share of frames that came out as they went in."""
    there = set(frames(came)) if os.path.exists(came) and os.path.getsize(came) else set()
    return sum(frame in there for frame in source) / len(source)


class Run:
    def __init__(self, args, work, video, source):
        self.args, self.work, self.video, self.source = args, work, video, source

    def gateways(self, processes, relay, into, out, more):
        """Two gateways with the links between them; the first listens at `into`, the second forwards to `out`."""
        port = free_port()
        identity = os.path.join(self.work, "gateway.pem")
        server = [self.args.program, "tunnel", "--serve", f"127.0.0.1:{port}", "--identity", identity, "--forward", f"media=udp:127.0.0.1:{out}"]
        processes.start("server", server)
        for link in relay.links:
            link.target = ("127.0.0.1", port)
        fingerprint = self.wait_for("server", "fingerprint ")
        paths = [part for at, link in enumerate(relay.links) for part in ("--path", f"127.0.0.{at + 2}=127.0.0.1:{link.port}")]
        client = [self.args.program, "tunnel", f"127.0.0.1:{relay.links[0].port}", "--fingerprint", fingerprint, *paths]
        processes.start("client", [*client, "--listen", f"udp:127.0.0.1:{into}=media,{more}"])
        self.wait_for("client", "connected")
        time.sleep(0.5)

    def wait_for(self, log, what):
        for _ in range(200):
            with open(os.path.join(self.logs, f"{log}.log"), encoding="utf-8", errors="replace") as said:
                for line in said:
                    if what in line:
                        return line.split(what)[1].strip()
            time.sleep(0.05)
        raise RuntimeError(f"{log} does not say {what!r}; see {self.logs}")

    def one(self, name, sender, receiver, links, tunnel):
        """Sends the video by `sender(port)` to `receiver(port, file)` over so many links; with a tunnel if it has settings for one."""
        self.logs = os.path.join(self.args.logs or self.work, name.replace(" ", "-").replace(",", ""))
        os.makedirs(self.logs, exist_ok=True)
        processes, came = Processes(self.logs), os.path.join(self.logs, "came.ts")
        out = free_port()
        relay = Relay([Link(("127.0.0.1", out), seed=at, **LINKS[at]) for at in range(links)])
        try:
            taking = processes.start("receiver", receiver(out, came))
            time.sleep(1)
            into = relay.links[0].port
            if tunnel:
                into = free_port()
                self.gateways(processes, relay, into, out, tunnel)
            relay.begin()
            sending = processes.start("sender", sender(into))
            sending.wait(self.args.seconds + 30)
            try:
                taking.wait(6)
            except subprocess.TimeoutExpired:
                taking.terminate()
                taking.wait(5)
        finally:
            processes.close()
            relay.close()
        return share(self.source, came)

    # What is sent, and what takes it.
    def send_ts(self, port):
        return [*FFMPEG, "-re", "-i", self.video, "-map", "0", "-c", "copy", "-f", "mpegts", f"udp://127.0.0.1:{port}?pkt_size=1316"]

    def take_ts(self, port, file):
        return [*FFMPEG, "-i", f"udp://127.0.0.1:{port}?timeout=3000000&fifo_size=50000", "-map", "0", "-c", "copy", "-f", "mpegts", file]

    def send_rtp(self, port):
        return [*FFMPEG, "-re", "-i", self.video, "-map", "0:v", "-c", "copy", "-bsf:v", "dump_extra", "-f", "rtp", f"rtp://127.0.0.1:{port}?pkt_size=1200&rtcpport={port + 1}"]

    def take_rtp(self, port, file):
        sdp = os.path.join(self.logs, "stream.sdp")
        with open(sdp, "w", encoding="ascii") as text:
            text.write(f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=-\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\na=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1\n")
        reorder = ["-reorder_queue_size", "500", "-max_delay", str(LATENCY_MS * 1000)]
        return [*FFMPEG, "-protocol_whitelist", "file,udp,rtp", *reorder, "-i", sdp, "-c", "copy", "-flush_packets", "1", "-f", "mpegts", file]

    def send_srt(self, port):
        return [*FFMPEG, "-re", "-i", self.video, "-map", "0", "-c", "copy", "-f", "mpegts", f"srt://127.0.0.1:{port}?mode=caller&latency={LATENCY_MS * 1000}&pkt_size=1316"]

    def take_srt(self, port, file):
        return [*FFMPEG, "-i", f"srt://127.0.0.1:{port}?mode=listener&latency={LATENCY_MS * 1000}&timeout=4000000", "-map", "0", "-c", "copy", "-f", "mpegts", file]


def main():
    parser = argparse.ArgumentParser(prog="scripts/gateway", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--program", default=os.path.join(target, "release", "punctual"), help="what to try (default: %(default)s)")
    parser.add_argument("--only", choices=["mpegts", "rtp", "srt"], action="append", help="only this part; may be repeated")
    parser.add_argument("--seconds", type=int, default=15, help="of video (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the result there, as one JSON object")
    parser.add_argument("--logs", metavar="DIR", help="keep there what came, and what the programs said")
    args = parser.parse_args()
    if not shutil.which("ffmpeg"):
        refuse("ffmpeg is not there: apt-get install ffmpeg")
    if not os.access(args.program, os.X_OK):
        refuse(f"{args.program} is not there: make gateway builds it")
    protocols = subprocess.run(["ffmpeg", "-hide_banner", "-protocols"], capture_output=True, text=True).stdout.split()
    parts = [part for part in args.only or ["mpegts", "rtp", "srt"] if part != "srt" or "srt" in protocols]
    rows = []
    with tempfile.TemporaryDirectory(prefix="punctual-gateway-") as work:
        video = os.path.join(work, "video.ts")
        make_video(video, args.seconds)
        run = Run(args, work, video, frames(video))
        deadline = f"deadline={LATENCY_MS}ms"
        cases = {
            "mpegts": (run.send_ts, run.take_ts, f"format=mpegts,{deadline}"),
            "rtp": (run.send_rtp, run.take_rtp, f"format=rtp-h264,{deadline}"),
            # SRT has a clock of its own, and asks for what it misses: the gateway only has to be quick.
            "srt": (run.send_srt, run.take_srt, f"{deadline},redundancy=auto"),
        }
        for part in parts:
            sender, receiver, tunnel = cases[part]
            plain = run.one(f"{part}, one link", sender, receiver, 1, None)
            tunnelled = run.one(f"{part}, gateway over two", sender, receiver, 2, tunnel)
            rows.append((part, plain, tunnelled))
            print(f"{part:8} one link {plain:6.1%}   gateway over two links {tunnelled:6.1%}   of {len(run.source)} frames", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({part: {"one_link": plain, "gateway": tunnelled} for part, plain, tunnelled in rows}, file)
    failed = [part for part, plain, tunnelled in rows if tunnelled < MUST or tunnelled < plain]
    if failed:
        print(f"the gateway does not do what it must: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
